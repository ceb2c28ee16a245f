// The gradients of attention over few keys, of 16-bit elements on tensor cores: a block owns a whole head, each of its warps 32
// keys. Their sums dk and dv stay in registers while queries stream past in tiles. Scores stand transposed, a row for each key, in
// the layout of mma.h. The gradients of a tile's scores go through shared memory, where dq is summed over all keys: five products
// in all, and no score in memory. Each element is summed by one thread in the order of the stream.
#pragma once

// kBytes (4 or 16) from memory to shared memory, zeros unless `there`; done for the thread itself after gc_await_copies().
template <int kBytes>
GC_DEVICE void gc_copy_async(void* to, const void* from, bool there) {
#ifdef __CUDA_ARCH__
  const unsigned place = (unsigned)__cvta_generic_to_shared(to), bytes = there ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(place), "l"(from), "r"(bytes) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(place), "l"(from), "r"(bytes) : "memory");
#else
  gcomp_shim::copy_async(to, from, kBytes, there);
#endif
}
GC_DEVICE void gc_await_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" : : : "memory");
#else
  gcomp_shim::await_copies();
#endif
}

// Sums of kBlocks tiles of 16 rows below each other in a warp's registers, as gc_store_rows() takes them.
template <class Storage, int kBlocks, int kAcross>
struct gc_short_rows {
  typedef Storage T;
  typedef float V;
  static constexpr int kRows = 2 * kBlocks, kOutColumns = kAcross / 4, kOutVector = 2;
  struct Output {
    float values[kBlocks][kAcross / 8][4];
    GC_DEVICE float at(int i, int j) const { return values[i / 2][j / 2][2 * (i % 2) + j % 2]; }
    GC_DEVICE void clear() {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int j = 0; j < kAcross / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) values[b][j][e] = 0;
    }
  };
  static GC_DEVICE int row(int i) { return (int)threadIdx.x % 32 / 4 + i / 2 * 16 + i % 2 * 8; }
  static GC_DEVICE int out_column(int j) { return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2; }
};

// Heads of up to kWidth elements, a multiple of 16 and at most 64, and 32 * kWarps keys.
template <class Storage, int kPaddedWidth, int kKeyWarps>
struct gc_short_kit {
  typedef Storage T;
  typedef float V;
  typedef T Element;
  static constexpr int kWidth = kPaddedWidth, kWarps = kKeyWarps, kThreads = 32 * kWarps, kKeys = 32 * kWarps, kTile = 32;
  static constexpr int kPitch = kWidth + 8, kScorePitch = kTile + 8;  // the 8 rows of a matrix lie in different banks
  static constexpr int kBytes = sizeof(T);
  static constexpr int kVector = 16 / kBytes, kVectors = kWidth / kVector;
  static constexpr int kSlots = kVectors > 4 ? 8 : kVectors > 2 ? 4 : 2;  // lanes that share a row of a tile, some of them idle
  static constexpr int kRounds = (kTile * kSlots + kThreads - 1) / kThreads;
  struct alignas(16) Shared {
    T keys[kKeys * kPitch];
    T tiles[2][2][kTile * kPitch];  // of queries, and of the gradients of their results
    T results[2][kTile * kPitch];
    union {
      T scores[2][kKeys * kScorePitch];  // gradients of a tile's scores, a line for each key
      T values[kKeys * kPitch];          // until they are in registers
    };
    float rows[2][3][kTile];  // of each query log2(sum of exp(score)), the sum of exp(score - top) and delta
  };
  typedef unsigned Left[kWidth / 16][2][4];  // a warp's rows of a matrix
  typedef typename gc_short_rows<T, 2, kWidth>::Output Sums;
  typedef float Scores[2][2][4];  // of a warp's keys and 16 queries

  template <int kVector>
  static GC_DEVICE void put(T* to, const gc_vector<T, kVector>& vector) {
    gc_move_vector((gc_vector<T, kVector>*)to, &vector);
  }

  // A left operand: the two tiles of 16 rows that begin at `place`, columns from d to d + 15.
  static GC_DEVICE gc_shared_place left_place(const T* rows) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8;
    return gc_shared_place_of(rows + (matrix % 2 * 8 + lane % 8) * kPitch + matrix / 2 * 8);
  }
  static GC_DEVICE void load_left(unsigned (&to)[2][4], gc_shared_place place, int d) {
#pragma unroll
    for (int b = 0; b < 2; ++b) gc_load_matrices_at<false>(to[b], place + (b * 16 * kPitch + d) * kBytes);
  }

  // scores[n][m] = sum over the width of left[n] * tile[m].
  template <class LeftAt>
  static GC_DEVICE void dot(Scores& scores, const LeftAt& left_at, const T* tile) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8;
    const gc_shared_place place = gc_shared_place_of(tile + (matrix / 2 * 8 + lane % 8) * kPitch + matrix % 2 * 8);
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[b][0][e] = scores[b][1][e] = 0;
#pragma unroll
    for (int d = 0; d < kWidth; d += 16) {
      unsigned both[4], left[2][4];
      left_at(d, left);
      gc_load_matrices_at<false>(both, place + d * kBytes);
      const unsigned near[2] = {both[0], both[1]}, far[2] = {both[2], both[3]};
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        gc_mma(T(), scores[b][0], left[b], near);
        gc_mma(T(), scores[b][1], left[b], far);
      }
    }
  }

  // sums[n] += sum over 16 queries of weights[n][m] * tile[m].
  static GC_DEVICE void mix(Sums& sums, const unsigned (&weights)[2][4], const T* tile) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8;
    const gc_shared_place place = gc_shared_place_of(tile + (matrix % 2 * 8 + lane % 8) * kPitch + matrix / 2 * 8);
#pragma unroll
    for (int j = 0; j < kWidth / 8; j += 2) {
      unsigned both[4];
      gc_load_matrices_at<true>(both, place + j * 8 * kBytes);
      const unsigned near[2] = {both[0], both[1]}, far[2] = {both[2], both[3]};
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        gc_mma(T(), sums.values[b][j], weights[b], near);
        gc_mma(T(), sums.values[b][j + 1], weights[b], far);
      }
    }
  }

  // Rounded, in the layout of a left operand.
  static GC_DEVICE void round(unsigned (&to)[2][4], const Scores& from) {
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) to[b][e] = gc_pair_of(T(), from[b][e / 2][e % 2 * 2], from[b][e / 2][e % 2 * 2 + 1]);
  }
};

// A tile of queries from `first` on, on its way to half of the tiles in shared memory.
template <class Kit>
GC_DEVICE void gc_short_fetch(typename Kit::T* to, const typename Kit::T* from, const gc_attention_view& view, int first, int rows,
                              int width) {
  typedef typename Kit::T T;
  constexpr int kVector = Kit::kVector, kAtOnce = Kit::kRounds < 2 ? Kit::kRounds : 2;
#pragma unroll kAtOnce
  for (int i = 0; i < Kit::kRounds; ++i) {
    const int slot = (int)threadIdx.x + i * Kit::kThreads;
    if (slot >= Kit::kTile * Kit::kSlots) break;
    const int row = slot / Kit::kSlots, column = slot % Kit::kSlots * kVector;
    if (column >= Kit::kWidth) continue;
    T* place = to + row * Kit::kPitch + column;
    if (view.vector_width % kVector == 0) {
      const bool there = first + row < rows && column < width;
      gc_copy_async<16>(place, from + (there ? view.at(first + row, column) : 0), there);
    } else {
      gc_vector<T, kVector> values;
      gc_fetch_part<Kit>(values, from, view, first + row, column, rows, width);
      Kit::put(place, values);
    }
  }
}
template <class Kit>
GC_DEVICE void gc_short_fetch(typename Kit::Shared& shared, const gc_attention_sizes& s, const gc_attention_view& result,
                              const typename Kit::T* q, const typename Kit::T* dy, const typename Kit::T* y, const float* top,
                              const float* sum, int first, int half) {
  gc_short_fetch<Kit>(shared.tiles[half][0], q, s.q, first, s.queries, s.width);
  gc_short_fetch<Kit>(shared.tiles[half][1], dy, s.y, first, s.queries, s.value_width);
  gc_short_fetch<Kit>(shared.results[half], y, result, first, s.queries, s.value_width);
  const int lane = (int)threadIdx.x;
  if (lane >= Kit::kTile) return;
  const bool there = first + lane < s.queries;
  gc_copy_async<4>(&shared.rows[half][0][lane], top + (there ? first + lane : 0), there);
  gc_copy_async<4>(&shared.rows[half][1][lane], sum + (there ? first + lane : 0), there);
}
// delta = sum(dy * y) of each query of a tile: a thread adds up what it brought itself, then the lanes of a row their sums.
template <class Kit>
GC_DEVICE void gc_short_deltas(typename Kit::Shared& shared, int half) {
  constexpr int kAtOnce = Kit::kRounds < 2 ? Kit::kRounds : 2;
#pragma unroll kAtOnce
  for (int i = 0; i < Kit::kRounds; ++i) {
    const int slot = (int)threadIdx.x + i * Kit::kThreads;
    if (slot >= Kit::kTile * Kit::kSlots) break;  // whole warps
    const int row = slot / Kit::kSlots, column = slot % Kit::kSlots * Kit::kVector;
    float delta = 0;
    if (column < Kit::kWidth) {
      float dy[Kit::kVector], y[Kit::kVector];
      gc_load_vector(&shared.tiles[half][1][row * Kit::kPitch + column], dy);
      gc_load_vector(&shared.results[half][row * Kit::kPitch + column], y);
#pragma unroll
      for (int e = 0; e < Kit::kVector; ++e) delta += dy[e] * y[e];
    }
    delta = gc_combine_lanes<Kit::kSlots>(delta, gc_combine_sum());
    if (column == 0) shared.rows[half][2][row] = delta;
  }
}
// The thread's part of it is there.
template <class Kit>
GC_DEVICE void gc_short_await(typename Kit::Shared& shared, const gc_attention_sizes& s, int half) {
  gc_await_copies();
  gc_short_deltas<Kit>(shared, half);
  const int lane = (int)threadIdx.x;
  if (lane >= Kit::kTile) return;
  const float sum = shared.rows[half][1][lane];
  float& log = shared.rows[half][0][lane];
  log = s.closed_rows_are_zero && sum == 0 ? gc_infinity32 : log * gc_log2_e + log2f(sum);
}

// Products become probabilities, and dy v the gradients of scores before scale, of a warp's keys from `key` on and the 16 queries
// from `query` on, whose statistics are `rows`.
template <bool kPlain, class Kit>
GC_DEVICE void gc_short_pairs(const gc_attention_sizes& s, const float* logs, const float* deltas, int query, int key,
                              typename Kit::Scores& scores, typename Kit::Scores& gradients) {
  const int lane = (int)threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float log[2], delta[2];
    gc_load_vector(logs + j * 8 + column, log);
    gc_load_vector(deltas + j * 8 + column, delta);
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float &p = scores[b][j][e], &dp = gradients[b][j][e];
        p = gc_rounded_exp2(p * ((float)s.scale * gc_log2_e) - log[e % 2]);
        dp = p * (dp - delta[e % 2]);
        if constexpr (!kPlain) {
          const int m = query + j * 8 + column + e % 2, n = key + b * 16 + row + e / 2 * 8;
          if (m >= s.queries || n >= s.keys || (s.causal && n > m)) p = dp = 0;
        }
      }
  }
}

// dk and dv of a warp's keys from `key` on meet a tile of queries from `query` on; what they make of its scores' gradients is left
// for dq.
template <class Kit>
GC_DEVICE void gc_short_key_gradients(typename Kit::Shared& shared, const gc_attention_sizes& s, gc_shared_place k,
                                      const typename Kit::Left& v, int query, int key, int half, typename Kit::Sums& dk,
                                      typename Kit::Sums& dv) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
  for (int m = 0; m < Kit::kTile && query + m < s.queries; m += 16) {
    const typename Kit::T *q = &shared.tiles[half][0][m * Kit::kPitch], *dy = &shared.tiles[half][1][m * Kit::kPitch];
    typename Kit::Scores scores, gradients;
    Kit::dot(
        scores, [&](int d, unsigned(&to)[2][4]) { Kit::load_left(to, k, d); }, q);
    Kit::dot(
        gradients,
        [&](int d, unsigned(&to)[2][4]) {
#pragma unroll
          for (int b = 0; b < 2; ++b)
#pragma unroll
            for (int e = 0; e < 4; ++e) to[b][e] = v[d / 16][b][e];
        },
        dy);
    const float *logs = &shared.rows[half][0][m], *deltas = &shared.rows[half][2][m];
    if (gc_is_plain(s, query + m, 16, key, 32)) gc_short_pairs<true, Kit>(s, logs, deltas, query + m, key, scores, gradients);
    else gc_short_pairs<false, Kit>(s, logs, deltas, query + m, key, scores, gradients);
    unsigned weights[2][4];
    Kit::round(weights, scores);
    Kit::mix(dv, weights, dy);
    Kit::round(weights, gradients);
    typename Kit::T* line = &shared.scores[half][(key + lane / 4) * Kit::kScorePitch + m + lane % 4 * 2];
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) *(unsigned*)(line + (b * 16 + e % 2 * 8) * Kit::kScorePitch + e / 2 * 8) = weights[b][e];
    Kit::mix(dk, weights, q);
  }
}

// dq of a tile of queries from `query` on. The last warps have a slice of 16 columns each.
template <class Kit>
GC_DEVICE void gc_short_query_gradient(const typename Kit::Shared& shared, const gc_attention_sizes& s, int query, int half,
                                       typename Kit::T* dq) {
  typedef gc_short_rows<typename Kit::T, 2, 16> Rows;
  const int lane = (int)threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
  const int end = s.causal && query + Kit::kTile < s.keys ? query + Kit::kTile : s.keys;
#pragma unroll 1
  for (int slice = Kit::kWarps - 1 - (int)threadIdx.x / 32; slice < Kit::kWidth / 16; slice += Kit::kWarps) {
    const gc_shared_place left =
                              gc_shared_place_of(&shared.scores[half][(matrix / 2 * 8 + line) * Kit::kScorePitch + matrix % 2 * 8]),
                          right =
                              gc_shared_place_of(&shared.keys[(matrix % 2 * 8 + line) * Kit::kPitch + slice * 16 + matrix / 2 * 8]);
    typename Rows::Output sums;
    sums.clear();
#pragma unroll 2
    for (int n = 0; n < end; n += 16) {
      unsigned a[2][4], both[4];
#pragma unroll
      for (int b = 0; b < 2; ++b) gc_load_matrices_at<true>(a[b], left + (n * Kit::kScorePitch + b * 16) * Kit::kBytes);
      gc_load_matrices_at<true>(both, right + n * Kit::kPitch * Kit::kBytes);
      const unsigned near[2] = {both[0], both[1]}, far[2] = {both[2], both[3]};
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        gc_mma(typename Kit::T(), sums.values[b][0], a[b], near);
        gc_mma(typename Kit::T(), sums.values[b][1], a[b], far);
      }
    }
    float factors[Rows::kRows];
#pragma unroll
    for (int i = 0; i < Rows::kRows; ++i) factors[i] = (float)s.scale;
    gc_store_rows<Rows>(dq + slice * 16, s.dq, sums, factors, query, s.queries, s.width - slice * 16);
  }
}

// dq, dk and dv. While a tile meets the keys, dq of the one before is summed and the next one is on its way.
template <class Kit, class Nothing>
GC_DEVICE void gc_attention_short_gradient(typename Kit::Shared& shared, const gc_attention_sizes& s,
                                           const gc_attention_view& result, const typename Kit::T* q, const typename Kit::T* k,
                                           const typename Kit::T* v, const typename Kit::T* dy, const typename Kit::T* y,
                                           const float* top, const float* sum, const Nothing*, const Nothing*, typename Kit::T* dq,
                                           typename Kit::T* dk, typename Kit::T* dv) {
  const int batch = (int)blockIdx.x, key = (int)threadIdx.x / 32 * 32;
  q = gc_matrix_of(q, s.q, s, batch);
  dy = gc_matrix_of(dy, s.y, s, batch);
  y = gc_matrix_of(y, result, s, batch);
  dq = gc_matrix_of(dq, s.dq, s, batch);
  top += (long long)batch * s.queries;
  sum += (long long)batch * s.queries;
  gc_short_fetch<Kit>(shared, s, result, q, dy, y, top, sum, 0, 0);
  gc_fill<Kit, Kit::kKeys>(shared.keys, gc_matrix_of(k, s.k, s, batch), s.k, 0, s.keys, s.width);
  gc_fill<Kit, Kit::kKeys>(shared.values, gc_matrix_of(v, s.v, s, batch), s.v, 0, s.keys, s.value_width);
  gc_short_await<Kit>(shared, s, 0);
  __syncthreads();
  const gc_shared_place keys = Kit::left_place(&shared.keys[key * Kit::kPitch]);
  typename Kit::Left values;  // keys would leave too few registers
#pragma unroll
  for (int d = 0; d < Kit::kWidth; d += 16) Kit::load_left(values[d / 16], Kit::left_place(&shared.values[key * Kit::kPitch]), d);
  __syncthreads();  // scores lie where values were
  typename Kit::Sums key_sums, value_sums;
  key_sums.clear();
  value_sums.clear();
  int half = 0;
#pragma unroll 1
  for (int m = 0;; m += Kit::kTile, half ^= 1) {
    const bool more = m + Kit::kTile < s.queries;
    if (more) gc_short_fetch<Kit>(shared, s, result, q, dy, y, top, sum, m + Kit::kTile, half ^ 1);
    // Under the causal mask keys behind the tile are not looked at by dq either.
    if (m < s.queries && !(s.causal && m + Kit::kTile <= key))
      gc_short_key_gradients<Kit>(shared, s, keys, values, m, key, half, key_sums, value_sums);
    if (m > 0) gc_short_query_gradient<Kit>(shared, s, m - Kit::kTile, half ^ 1, dq);
    if (m >= s.queries) break;
    if (more) gc_short_await<Kit>(shared, s, half ^ 1);
    __syncthreads();
  }
  typedef gc_short_rows<typename Kit::T, 2, Kit::kWidth> Rows;
  float factors[Rows::kRows];
#pragma unroll
  for (int i = 0; i < Rows::kRows; ++i) factors[i] = (float)s.scale;
  gc_store_rows<Rows>(gc_matrix_of(dk, s.dk, s, batch), s.dk, key_sums, factors, key, s.keys, s.width);
#pragma unroll
  for (int i = 0; i < Rows::kRows; ++i) factors[i] = 1;
  gc_store_rows<Rows>(gc_matrix_of(dv, s.dv, s, batch), s.dv, value_sums, factors, key, s.keys, s.value_width);
}
