// Neighbouring elements moved as one: up to 16 bytes an access, the width that memory likes best.
#pragma once

template <int kBytes>
struct gc_word;
template <>
struct gc_word<1> {
  typedef unsigned char type;
};
template <>
struct gc_word<2> {
  typedef unsigned short type;
};
template <>
struct gc_word<4> {
  typedef unsigned int type;
};
template <>
struct gc_word<8> {
  typedef uint2 type;
};
template <>
struct gc_word<16> {
  typedef uint4 type;
};

// kCount elements as they lie in memory, aligned so that they move in words.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) gc_vector {
  static constexpr int kWord = sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16;
  typedef typename gc_word<kWord>::type Word;
  T at[kCount];
};
template <class T, int kCount>
GC_DEVICE void gc_move_vector(gc_vector<T, kCount>* to, const gc_vector<T, kCount>* from) {
  typedef gc_vector<T, kCount> Vector;
#pragma unroll
  for (int i = 0; i < (int)sizeof(Vector) / Vector::kWord; ++i)
    ((typename Vector::Word*)to)[i] = ((const typename Vector::Word*)from)[i];
}

template <class T>
GC_DEVICE T gc_load(T x) {
  return x;
}
template <class T>
GC_DEVICE void gc_put(T& to, T x) {
  to = x;
}
GC_DEVICE void gc_put(gc_f16& to, float x) { to = gc_store_f16(x); }
GC_DEVICE void gc_put(gc_bf16& to, float x) { to = gc_store_bf16(x); }

// A vector as it lies in memory, aligned to itself, and its values in the type they are computed in.
template <class T, int kCount>
GC_DEVICE void gc_fetch_vector(const T* from, gc_vector<T, kCount>& to) {
  gc_move_vector(&to, (const gc_vector<T, kCount>*)from);
}
template <class T, class V, int kCount>
GC_DEVICE void gc_unpack_vector(const gc_vector<T, kCount>& from, V (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = gc_load(from.at[i]);
}

// A vector to and from values of the type it is computed in. `from` and `to` are aligned to the vector.
template <class T, class V, int kCount>
GC_DEVICE void gc_load_vector(const T* from, V (&to)[kCount]) {
  gc_vector<T, kCount> vector;
  gc_fetch_vector(from, vector);
  gc_unpack_vector(vector, to);
}
template <class T, class V, int kCount>
GC_DEVICE void gc_store_vector(T* to, const V (&from)[kCount]) {
  gc_vector<T, kCount> vector;
#pragma unroll
  for (int i = 0; i < kCount; ++i) gc_put(vector.at[i], from[i]);
  gc_move_vector((gc_vector<T, kCount>*)to, &vector);
}

// The same of several vectors of kWidth behind each other, `to` aligned to one.
template <int kWidth, class T, class V, int kCount>
GC_DEVICE void gc_store_vectors(T* to, const V (&from)[kCount]) {
  gc_vector<T, kWidth> vector;
#pragma unroll
  for (int first = 0; first < kCount; first += kWidth) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) gc_put(vector.at[i], from[first + i]);
    gc_move_vector((gc_vector<T, kWidth>*)(to + first), &vector);
  }
}

// The same where only `count` elements are left: the others are 0, and not written.
template <class T, class V, int kCount>
GC_DEVICE void gc_load_vector(const T* from, V (&to)[kCount], long long count) {
  if (count >= kCount) return gc_load_vector(from, to);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = i < count ? (V)gc_load(from[i]) : (V)0;
}
template <class T, class V, int kCount>
GC_DEVICE void gc_store_vector(T* to, const V (&from)[kCount], long long count) {
  if (count >= kCount) return gc_store_vector(to, from);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) gc_put(to[i], from[i]);
}

// The first position of the vector in which `position` lies, of vectors at multiples of their width; -1 where no index reaches it.
template <int kWidth, class Index>
GC_DEVICE Index gc_vector_start(long long position) {
  return position < 0 || position != (Index)position ? (Index)-1 : (Index)(position / kWidth * kWidth);
}

// A launch over several sets of buffers: segment s has the blocks from first_block[s] to first_block[s + 1], its elements are
// extents[s], and its buffers are pointers[s * buffers ...].
struct SegmentTable {
  int segments, buffers;
  const int* first_block;
  const long long* extents;
  void* const* pointers;
};

// The segment of this block, by bisection.
GC_DEVICE int gc_segment(const SegmentTable* table) {
  int low = 0, high = table->segments - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table->first_block[middle] <= (int)blockIdx.x) low = middle;
    else high = middle - 1;
  }
  return low;
}
