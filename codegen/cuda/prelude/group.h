// Values combined across the threads of a group, always in the same fixed tree, so that a launch gives the same bits each time.
#pragma once

struct gc_combine_sum {
  template <class T>
  GC_DEVICE T operator()(T a, T b) const {
    return (T)(a + b);
  }
};
struct gc_combine_product {
  template <class T>
  GC_DEVICE T operator()(T a, T b) const {
    return (T)(a * b);
  }
};
struct gc_combine_maximum {
  template <class T>
  GC_DEVICE T operator()(T a, T b) const {
    return (T)gc_maximum(a, b);
  }
};
struct gc_combine_minimum {
  template <class T>
  GC_DEVICE T operator()(T a, T b) const {
    return (T)gc_minimum(a, b);
  }
};
struct gc_combine_or {
  GC_DEVICE bool operator()(bool a, bool b) const { return a || b; }
};
struct gc_combine_and {
  GC_DEVICE bool operator()(bool a, bool b) const { return a && b; }
};

// The first best value: NaN is best of all, and of equals the one at the lower position wins. An empty one has position -1.
template <class T>
struct gc_best {
  T value;
  long long position;
};
template <bool kMaximum, class T>
GC_DEVICE bool gc_beats(const gc_best<T>& b, const gc_best<T>& a) {
  if (b.position < 0 || a.position < 0) return b.position >= 0;
  const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
  if (nan_a || nan_b) return nan_b && (!nan_a || b.position < a.position);
  if (a.value == b.value) return b.position < a.position;
  return kMaximum ? b.value > a.value : b.value < a.value;
}
struct gc_combine_first_maximum {
  template <class T>
  GC_DEVICE gc_best<T> operator()(const gc_best<T>& a, const gc_best<T>& b) const {
    return gc_beats<true>(b, a) ? b : a;
  }
};
struct gc_combine_first_minimum {
  template <class T>
  GC_DEVICE gc_best<T> operator()(const gc_best<T>& a, const gc_best<T>& b) const {
    return gc_beats<false>(b, a) ? b : a;
  }
};

template <class T>
GC_DEVICE T gc_shuffle(T x, int distance) {
  return __shfl_xor_sync(0xffffffffu, x, distance);
}
GC_DEVICE bool gc_shuffle(bool x, int distance) { return __shfl_xor_sync(0xffffffffu, (int)x, distance) != 0; }
GC_DEVICE signed char gc_shuffle(signed char x, int distance) {
  return (signed char)__shfl_xor_sync(0xffffffffu, (int)x, distance);
}
GC_DEVICE unsigned char gc_shuffle(unsigned char x, int distance) {
  return (unsigned char)__shfl_xor_sync(0xffffffffu, (int)x, distance);
}
GC_DEVICE short gc_shuffle(short x, int distance) { return (short)__shfl_xor_sync(0xffffffffu, (int)x, distance); }
GC_DEVICE unsigned short gc_shuffle(unsigned short x, int distance) {
  return (unsigned short)__shfl_xor_sync(0xffffffffu, (int)x, distance);
}
template <class T>
GC_DEVICE gc_best<T> gc_shuffle(const gc_best<T>& x, int distance) {
  return {gc_shuffle(x.value, distance), gc_shuffle(x.position, distance)};
}

// Joins over groups of kLanes neighbouring lanes, a power of two up to 32. All threads of the warp take part; each lane of a group
// gets the same result, since both sides of each exchange combine the same two values.
template <int kLanes, class Combine, class T>
GC_DEVICE T gc_combine_lanes(T x, Combine combine) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const T other = gc_shuffle(x, distance);
    x = threadIdx.x & distance ? combine(other, x) : combine(x, other);
  }
  return x;
}

// Joins over a block of kThreads, a multiple of 32. `shared` holds kThreads / 32 values and is free again on return.
template <int kThreads, class Combine, class T>
GC_DEVICE T gc_combine_block(T x, Combine combine, T* shared) {
  x = gc_combine_lanes<32>(x, combine);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) x = combine(x, shared[warp]);
  __syncthreads();
  return x;
}

// Joins the kRows values of each of kColumns columns, thread y * kColumns + x holding the value of row y. `shared` holds one value
// for each thread and is free again on return. Every thread of a column gets the result.
template <int kColumns, int kRows, class Combine, class T>
GC_DEVICE T gc_combine_column(T x, Combine combine, T* shared) {
  shared[threadIdx.x] = x;
  __syncthreads();
  x = shared[threadIdx.x % kColumns];
#pragma unroll
  for (int row = 1; row < kRows; ++row) x = combine(x, shared[row * kColumns + threadIdx.x % kColumns]);
  __syncthreads();
  return x;
}

// Joins the values of kColumns columns of kLanes lanes each, thread y * kColumns + x holding those of column x in row y. A warp
// first joins the rows that it holds; `shared` then takes those of gc_joined_rows rows, gc_joined_values in all, and is free again
// on return. Every thread of a column gets the result.
template <int kColumns>
constexpr int gc_warp_rows = kColumns < 32 ? 32 / kColumns : 1;
template <int kColumns, int kRows>
constexpr int gc_joined_rows = kRows / gc_warp_rows<kColumns>;
// With room behind each lane's rows that keeps the banks of neighbouring lanes apart.
template <int kColumns, int kRows, int kLanes>
constexpr int gc_joined_values = kLanes* kColumns*(gc_joined_rows<kColumns, kRows> + 1);
template <int kColumns, int kRows, int kLanes, class Combine, class T>
GC_DEVICE void gc_combine_columns(T (&x)[kLanes], Combine combine, T* shared) {
  constexpr int kJoined = gc_joined_rows<kColumns, kRows>, kLane = kColumns * (kJoined + 1);
#pragma unroll
  for (int distance = kColumns; distance < 32; distance *= 2)
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      const T other = gc_shuffle(x[lane], distance);
      x[lane] = threadIdx.x & distance ? combine(other, x[lane]) : combine(x[lane], other);
    }
  if (kJoined == 1) return;
  const int column = threadIdx.x % kColumns, row = threadIdx.x / (kColumns * gc_warp_rows<kColumns>);
  if (kColumns >= 32 || threadIdx.x % 32 < kColumns)
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) shared[lane * kLane + row * kColumns + column] = x[lane];
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns * kLanes; i += kColumns * kRows) {
    T* const rows = shared + i / kColumns * kLane + i % kColumns;
    T total = rows[0];
#pragma unroll
    for (int r = 1; r < kJoined; ++r) total = combine(total, rows[r * kColumns]);
    rows[0] = total;
  }
  __syncthreads();
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = shared[lane * kLane + column];
  __syncthreads();
}
