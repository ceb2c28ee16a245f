// One tile of a matrix product by a block of threads, whatever its operands come from. A source gives vectors of elements; they
// wait in registers while the tile before them is multiplied, then go to the other half of shared memory.
#pragma once

GC_DEVICE int gc_quotient(int x, const gc_divisor& d) { return (int)((unsigned long long)(unsigned)x * d.multiplier >> d.shift); }

// In which direction the vectors of a source run: along k, or along m or n. FMA tiles take either at run time, since shared memory
// looks the same after both.
enum gc_direction { gc_along_k, gc_across, gc_either };

// Results of type T leave in vectors of kCount.
template <int kCount, class T, class V>
GC_DEVICE void gc_put_vector(T* to, const V (&values)[kCount]) {
  gc_vector<T, kCount> vector;
#pragma unroll
  for (int i = 0; i < kCount; ++i) gc_put(vector.at[i], values[i]);
  gc_move_vector((gc_vector<T, kCount>*)to, &vector);
}

// Multiplies by FMA in V, each thread kRows x kColumns sums in chunks of 16 bytes. Shared memory holds both operands with k
// slowest.
template <class Element, class Value, int kTileM, int kTileN, int kTileK, int kRows, int kColumns>
struct gc_fma_tile {
  typedef Element T;
  typedef Value V;
  static constexpr int kM = kTileM, kN = kTileN, kK = kTileK;
  static constexpr int kAcross = kN / kColumns, kThreads = kM / kRows * kAcross;
  static constexpr int kChunk = 16 / (int)sizeof(V);
  struct alignas(16) Shared {
    V a[2][kK * (kM + kChunk)], b[2][kK * (kN + kChunk)];
  };
  V sums[kRows][kColumns];

  // Chunks are spread over the tile, so that neighbouring threads read neighbouring 16 bytes.
  static GC_DEVICE int row(int i) { return i / kChunk * (kM * kChunk / kRows) + (int)threadIdx.x / kAcross * kChunk + i % kChunk; }
  static GC_DEVICE int column(int j) {
    return j / kChunk * (kN * kChunk / kColumns) + (int)threadIdx.x % kAcross * kChunk + j % kChunk;
  }

  GC_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[i][j] = 0;
  }

  template <int kExtent, int kVector>
  static GC_DEVICE void put(V* shared, int across, int k, bool along_k, const gc_vector<T, kVector>& vector) {
    V* to = shared + k * (kExtent + kChunk) + across;
    V values[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = (V)gc_load(vector.at[i]);
    if (!along_k) {
      gc_put_vector<kVector>(to, values);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) to[i * (kExtent + kChunk)] = values[i];
    }
  }
  template <int kVector>
  static GC_DEVICE void put_a(Shared& shared, int half, int m, int k, bool along_k, const gc_vector<T, kVector>& vector) {
    put<kM>(shared.a[half], m, k, along_k, vector);
  }
  template <int kVector>
  static GC_DEVICE void put_b(Shared& shared, int half, int n, int k, bool along_k, const gc_vector<T, kVector>& vector) {
    put<kN>(shared.b[half], n, k, along_k, vector);
  }

  GC_DEVICE void multiply(const Shared& shared, int half) {
#pragma unroll 4
    for (int k = 0; k < kK; ++k) {
      V a[kRows], b[kColumns];
#pragma unroll
      for (int i = 0; i < kRows; i += kChunk)
        gc_move_vector((gc_vector<V, kChunk>*)&a[i], (const gc_vector<V, kChunk>*)&shared.a[half][k * (kM + kChunk) + row(i)]);
#pragma unroll
      for (int j = 0; j < kColumns; j += kChunk)
        gc_move_vector((gc_vector<V, kChunk>*)&b[j], (const gc_vector<V, kChunk>*)&shared.b[half][k * (kN + kChunk) + column(j)]);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[i][j] += a[i] * b[j];
    }
  }

  // Gives the sums to a store, in chunks of neighbours in a row or in a column.
  template <class Store>
  GC_DEVICE void each_in_rows(int m0, int n0, const Store& store) const {
#pragma unroll
    for (int j = 0; j < kColumns; j += kChunk) {
      typename Store::template Place<kChunk> place;
      store.find(n0 + column(j), place);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        V values[kChunk];
#pragma unroll
        for (int c = 0; c < kChunk; ++c) values[c] = sums[i][j + c];
        store.put(place, m0 + row(i), values);
      }
    }
  }
  template <class Store>
  GC_DEVICE void each_in_columns(int m0, int n0, const Store& store) const {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      typename Store::template Place<kChunk> place;
      store.find(n0 + column(j), place);
#pragma unroll
      for (int i = 0; i < kRows; i += kChunk) {
        V values[kChunk];
#pragma unroll
        for (int c = 0; c < kChunk; ++c) values[c] = sums[i + c][j];
        store.put(place, m0 + row(i), values);
      }
    }
  }
};

// The vectors of one operand's tile that a thread moves. kExtent is the tile's extent in m or n.
template <class Source, class T, int kExtent, int kK, int kThreads>
struct gc_stage {
  static constexpr int kVector = Source::kVector, kCount = kExtent * kK / kVector / kThreads;
  static_assert(kCount * kThreads * kVector == kExtent * kK, "each thread moves equally many vectors");
  gc_vector<T, kVector> vectors[kCount];
  typename Source::Fixed fixed[kCount];

  static GC_DEVICE int across(const Source& source, int i) {
    const int vector = (int)threadIdx.x + i * kThreads;
    return source.runs_along_k() ? vector / (kK / kVector) : vector % (kExtent / kVector) * kVector;
  }
  static GC_DEVICE int along(const Source& source, int i) {
    const int vector = (int)threadIdx.x + i * kThreads;
    return source.runs_along_k() ? vector % (kK / kVector) * kVector : vector / (kExtent / kVector);
  }
  GC_DEVICE void fix(const Source& source, int first) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) fixed[i] = source.fix(first + across(source, i));
  }
  GC_DEVICE void load(const Source& source, int k, int k_end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) source.load(fixed[i], k + along(source, i), k_end, vectors[i]);
  }
};

template <class Tile, class A, class B>
GC_DEVICE void gc_accumulate(Tile& tile, typename Tile::Shared& shared, const A& a, const B& b, int m0, int n0, int k_begin,
                             int k_end) {
  typedef typename Tile::T T;
  gc_stage<A, T, Tile::kM, Tile::kK, Tile::kThreads> stage_a;
  gc_stage<B, T, Tile::kN, Tile::kK, Tile::kThreads> stage_b;
  tile.clear();
  stage_a.fix(a, m0);
  stage_b.fix(b, n0);
  // A tile is read while the one before it is multiplied. One barrier a tile: what it frees was multiplied before the last barrier.
#pragma unroll 1
  for (int k = k_begin, half = 0;; k += Tile::kK, half ^= 1) {
    const bool more = k < k_end;
    if (more) {
      stage_a.load(a, k, k_end);
      stage_b.load(b, k, k_end);
    }
    if (k > k_begin) tile.multiply(shared, half ^ 1);
    if (!more) break;
#pragma unroll
    for (int i = 0; i < stage_a.kCount; ++i)
      Tile::put_a(shared, half, stage_a.across(a, i), stage_a.along(a, i), a.runs_along_k(), stage_a.vectors[i]);
#pragma unroll
    for (int i = 0; i < stage_b.kCount; ++i)
      Tile::put_b(shared, half, stage_b.across(b, i), stage_b.along(b, i), b.runs_along_k(), stage_b.vectors[i]);
    __syncthreads();
  }
}

// Which tile a block computes. Tiles of 8 rows of tiles follow each other, so that operands are still in the cache.
struct gc_place {
  int m0, n0, k_begin, k_end, split, batch;
};
template <class Tile>
GC_DEVICE gc_place gc_place_of(const gc_tiling& t) {
  const int tiles = t.tiles_m * t.tiles_n, block = (int)blockIdx.x, rest = block / tiles;
  const int group = 8 * t.tiles_n, tile = block % tiles, first = tile / group * 8;
  const int rows = t.tiles_m - first < 8 ? t.tiles_m - first : 8;
  gc_place p;
  p.m0 = (first + tile % group % rows) * Tile::kM;
  p.n0 = tile % group / rows * Tile::kN;
  p.split = rest % t.splits;
  p.batch = rest / t.splits;
  p.k_begin = p.split * t.split_k;
  p.k_end = t.k - p.k_begin < t.split_k ? t.k : p.k_begin + t.split_k;
  return p;
}

// Stores into a matrix whose columns start where `Columns` says (null for one outside); rows are row_stride apart. In vectors only
// where each is inside or outside as a whole.
template <class T, class Columns, bool kInVectors>
struct gc_matrix_store {
  const Columns& columns;
  long long row_stride;
  int rows;

  template <int kCount>
  struct Place {
    T* at[kInVectors ? 1 : kCount];
  };
  template <int kCount>
  GC_DEVICE void find(int n, Place<kCount>& place) const {
#pragma unroll
    for (int c = 0; c < (kInVectors ? 1 : kCount); ++c) place.at[c] = columns.at(n + c);
  }
  template <int kCount, class V>
  GC_DEVICE void put(const Place<kCount>& place, int m, const V (&values)[kCount]) const {
    if (m >= rows) return;
    if constexpr (kInVectors) {
      if (place.at[0]) gc_put_vector<kCount>(place.at[0] + m * row_stride, values);
    } else {
#pragma unroll
      for (int c = 0; c < kCount; ++c)
        if (place.at[c]) gc_put(place.at[c][m * row_stride], values[c]);
    }
  }
};

template <class T>
struct gc_strided_columns {
  T* data;
  long long stride;
  int count;
  GC_DEVICE T* at(int n) const { return n < count ? data + n * stride : nullptr; }
};

// The tile's sums to a matrix, in vectors where the parameters allow it and the kernel is made for such.
template <class T, bool kInRows, bool kInColumns, class Tile, class Columns>
GC_DEVICE void gc_store_tile(const Tile& tile, const gc_place& p, const Columns& columns, long long row_stride, int rows,
                             int vectors) {
  if (kInRows && vectors == gc_vectors_rows)
    tile.each_in_rows(p.m0, p.n0, gc_matrix_store<T, Columns, true>{columns, row_stride, rows});
  else if (kInColumns && vectors == gc_vectors_columns)
    tile.each_in_columns(p.m0, p.n0, gc_matrix_store<T, Columns, true>{columns, row_stride, rows});
  else tile.each_in_rows(p.m0, p.n0, gc_matrix_store<T, Columns, false>{columns, row_stride, rows});
}

// Hands each sum inside of the matrix to an epilogue, with its row among those of all of the batch.
template <class Epilogue>
struct gc_epilogue_store {
  const Epilogue& epilogue;
  long long first_row;
  int rows, columns;

  template <int kCount>
  struct Place {
    int n;
  };
  template <int kCount>
  GC_DEVICE void find(int n, Place<kCount>& place) const {
    place.n = n;
  }
  template <int kCount, class V>
  GC_DEVICE void put(const Place<kCount>& place, int m, const V (&values)[kCount]) const {
    if (m >= rows) return;
#pragma unroll
    for (int c = 0; c < kCount; ++c)
      if (place.n + c < columns) epilogue(first_row + m, place.n + c, values[c]);
  }
};

// Partial sums go to the workspace, [split, batch, m, n].
GC_DEVICE int gc_partial_vectors(const gc_tiling& t) { return t.n % 4 == 0 ? gc_vectors_rows : gc_vectors_none; }
template <class Tile>
GC_DEVICE gc_strided_columns<typename Tile::V> gc_partial_sums(const gc_place& p, const gc_tiling& t, void* workspace) {
  typedef typename Tile::V V;
  return {(V*)workspace + ((long long)p.split * t.batches + p.batch) * t.m * t.n, 1, t.n};
}
template <class Tile>
GC_DEVICE void gc_store_partial(const Tile& tile, const gc_place& p, const gc_tiling& t, void* workspace) {
  gc_store_tile<typename Tile::V, true, false>(tile, p, gc_partial_sums<Tile>(p, t, workspace), t.n, t.m, gc_partial_vectors(t));
}

// A vector of which `count` elements are inside, the others 0. Where vectors may be read whole, one is inside or not.
template <class T, int kVector>
GC_DEVICE void gc_load_some(const T* from, long long step, int count, bool in_vectors, gc_vector<T, kVector>& to) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) to.at[i] = T();
  if (in_vectors) {
    if (count > 0) gc_move_vector(&to, (const gc_vector<T, kVector>*)from);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    if (i < count) to.at[i] = from[i * step];
}

// An operand that lies in memory as a matrix with any strides.
template <class T, int kDirection>
struct gc_matrix_source {
  static constexpr int kVector = 16 / (int)sizeof(T);
  typedef gc_vector<T, kVector> Vector;
  const T* data;
  long long across, along;   // strides of m or n, and of k
  int extent;                // of m or n
  bool in_vectors, along_k;  // the latter where kDirection leaves it open

  GC_DEVICE bool runs_along_k() const { return kDirection == gc_either ? along_k : kDirection == gc_along_k; }
  struct Fixed {
    const T* at;
    int left;
  };
  GC_DEVICE Fixed fix(int u) const { return {data + u * across, extent - u}; }
  GC_DEVICE void load(const Fixed& fixed, int k, int k_end, Vector& to) const {
    const int count = runs_along_k() ? (fixed.left > 0 ? k_end - k : 0) : (k < k_end ? fixed.left : 0);
    gc_load_some(fixed.at + k * along, runs_along_k() ? along : across, count, in_vectors, to);
  }
};
