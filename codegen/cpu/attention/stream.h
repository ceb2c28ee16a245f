// Attention by tasks that own a tile of queries and stream keys past them, and backwards (gradient.h) own a whole head and go
// through its tiles (Dao, "FlashAttention-2", 2023): scores are never in memory beyond a tile. All matrices of a tile are copied to
// where no row shares its cache sets with the next, padded with zeros, so that the products have whole tiles of registers. Matrices
// in bf16 become f32 there; by AMX's tiles they are multiplied as they are (tiles.h).
//
// Each element of a product is one chain of fused multiply-adds over the tiles in their order; sums of rows have kLanes lanes and a
// fixed tree. So neither the instruction set nor the number of threads changes a bit.
#pragma once

// A tile of a product in registers: GC_TILE_ROWS rows of two registers.
#if defined(GC_REGISTER_BYTES)
#elif defined(__AVX512F__)
#define GC_REGISTER_BYTES 64
#define GC_TILE_ROWS 12
#elif defined(__AVX2__)
#define GC_REGISTER_BYTES 32
#define GC_TILE_ROWS 6
#else
#define GC_REGISTER_BYTES 16
#define GC_TILE_ROWS 4
#endif
typedef float gc_register __attribute__((vector_size(GC_REGISTER_BYTES)));

#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma)
#define GC_ELEMENTWISE_FMA 1
#endif
#endif
GC_INLINE gc_register gc_fused(gc_register a, gc_register b, gc_register c) {
#if defined(GC_ELEMENTWISE_FMA) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__AVX512F__) && GC_REGISTER_BYTES == 64
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__) && GC_REGISTER_BYTES == 32
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  for (int i = 0; i < GC_REGISTER_BYTES / 4; ++i) c[i] = gc_fused(a[i], b[i], c[i]);
  return c;
#endif
}

namespace gc_attention {

// While it lives, numbers below 2^-126 are zeros, as they are to products (runtime/cpu/subnormals.h).
struct subnormals_as_zeros {
#if defined(__x86_64__)
  unsigned before;
  [[gnu::always_inline]] subnormals_as_zeros() {
    asm volatile("stmxcsr %0" : "=m"(before) : : "memory");
    const unsigned now = before | 0x8040;
    asm volatile("ldmxcsr %0" : : "m"(now) : "memory");
  }
  [[gnu::always_inline]] ~subnormals_as_zeros() { asm volatile("ldmxcsr %0" : : "m"(before) : "memory"); }
#else
  subnormals_as_zeros() {}
  ~subnormals_as_zeros() {}
#endif
};

struct no_mask {};
typedef float unaligned __attribute__((vector_size(GC_REGISTER_BYTES), aligned(4), may_alias));

constexpr long kTile = 64;   // queries and keys of a tile
constexpr long kLanes = 16;  // of a row's sum and maximum
constexpr long kGroup = 12;  // rows whose sums begin and end together at the diagonal: a multiple of each GC_TILE_ROWS
constexpr long kTileColumns = 2 * GC_REGISTER_BYTES / 4;

// Where a matrix lies in a buffer: elements of a row are neighbours, rows `row` elements apart.
struct view {
  long offset, batch[4], row;
};

struct sizes {
  long queries, keys, width, value_width;
  bool causal, closed_rows_are_zero;
  float scale, hidden, kept_scale;  // kept_scale: of what dropout keeps
  long kept_row;                    // bytes of a query's bits
  long batch[4], mask_batch[4], mask_query;
  view q, k, v, y;
  view dq, dk, dv;
};

GC_INLINE long batch_offset(const sizes& s, const long (&strides)[4], long batch) {
  long offset = 0;
  for (int d = 3; d >= 0; --d) {
    offset += batch % s.batch[d] * strides[d];
    batch /= s.batch[d];
  }
  return offset;
}
template <class T>
GC_INLINE T* matrix_of(T* buffer, const view& v, const sizes& s, long batch) {
  return buffer + v.offset + batch_offset(s, v.batch, batch);
}

GC_INLINE long up_to(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

// A tile of scores: how many of its queries and keys there are, and which see each other.
struct place {
  long queries, keys;
  long ahead;  // how far the first query is behind the first key; without a causal mask it sees the whole tile
  place(const sizes& s, long query, long key)
      : queries(gc_least(s.queries - query, kTile)), keys(gc_least(s.keys - key, kTile)), ahead(s.causal ? query - key : kTile) {}
  // The keys that a query sees are the first ones.
  long seen(long query) const { return gc_most(gc_least(ahead + query + 1, keys), 0); }
  long seen_by_group(long query) const { return seen(query / kGroup * kGroup + kGroup - 1); }
  // The first query of which a key's group is seen.
  long first_query(long key) const { return gc_most(key / kGroup * kGroup - ahead, 0); }
};

// c[i][j] = (kAdds ? c[i][j] : 0) + sum over p < k of a[i * kARow + p * kAStep] * b[p * kBRow + j], a tile of registers of c.
template <bool kAdds, long kARow, long kAStep, long kBRow, long kCRow>
GC_INLINE void multiply_tile(long k, const float* a, const float* b, float* c) {
  constexpr long kLength = GC_REGISTER_BYTES / 4;
  gc_register sum[GC_TILE_ROWS][2];
#pragma GCC unroll 12
  for (int i = 0; i < GC_TILE_ROWS; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) sum[i][j] = kAdds ? *(const unaligned*)(c + i * kCRow + j * kLength) : gc_register{};
#pragma GCC unroll 4
  for (long p = 0; p < k; ++p) {
    const gc_register left = *(const unaligned*)b, right = *(const unaligned*)(b + kLength);
#pragma GCC unroll 12
    for (int i = 0; i < GC_TILE_ROWS; ++i) {
      const gc_register element = a[i * kARow] - gc_register{};
      sum[i][0] = gc_fused(element, left, sum[i][0]);
      sum[i][1] = gc_fused(element, right, sum[i][1]);
    }
    a += kAStep;
    b += kBRow;
  }
#pragma GCC unroll 12
  for (int i = 0; i < GC_TILE_ROWS; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) *(unaligned*)(c + i * kCRow + j * kLength) = sum[i][j];
}

// Rows of a tile buffer: whole register tiles, so a few more than kTile.
constexpr long kRows = (kTile + kGroup - 1) / kGroup * kGroup;

// scores[query][key] = sum over width of own[query][d] * stream[d][key], as far as they are seen.
template <long W>
static void dot(const place& p, long width, const float* own, const float* stream, float* scores) {
  for (long i = 0; i < p.queries; i += GC_TILE_ROWS) {
    const long seen = p.seen(i + GC_TILE_ROWS - 1);
    for (long j = 0; j < seen; j += kTileColumns)
      multiply_tile<false, W, 1, kTile, kTile>(width, own + i * W, stream + j, scores + i * kTile + j);
  }
}

// out[query] += sum over keys of weights[query][key] * stream[key].
template <long W>
static void mix(const place& p, long width, const float* weights, const float* stream, float* out) {
  for (long i = 0; i < p.queries; i += GC_TILE_ROWS)
    for (long j = 0; j < width; j += kTileColumns)
      multiply_tile<true, kTile, 1, W, W>(p.seen_by_group(i), weights + i * kTile, stream + j, out + i * W + j);
}

// out[key] += sum over queries of weights[query][key] * stream[query].
template <long W>
static void mix_transposed(const place& p, long width, const float* weights, const float* stream, float* out) {
  for (long i = 0; i < p.keys; i += GC_TILE_ROWS) {
    const long first = p.first_query(i);
    if (first >= p.queries) return;
    for (long j = 0; j < width; j += kTileColumns)
      multiply_tile<true, 1, kTile, W, W>(p.queries - first, weights + first * kTile + i, stream + first * W + j, out + i * W + j);
  }
}

template <long W>
GC_INLINE void clear(float* to, long rows) {
  for (long i = 0; i < rows * W; ++i) to[i] = 0;
}

// One row, in registers: a call would cost as much as the copy.
template <long W>
GC_INLINE void copy_row(float* to, const float* from, long width) {
  constexpr long kLength = GC_REGISTER_BYTES / 4;
  if (width == W) {
#pragma GCC unroll 32
    for (long c = 0; c < W; c += kLength) *(unaligned*)(to + c) = *(const unaligned*)(from + c);
  } else {
    for (long c = 0; c < width; ++c) to[c] = from[c];
  }
}
template <long W>
GC_INLINE void copy_row(float* to, const gc_bf16* from, long width) {
  _Pragma("omp simd") for (long c = 0; c < width; ++c) to[c] = gc_load(from[c]);
}
template <long W>
GC_INLINE void copy_row(gc_bf16* to, const float* from, long width) {
  _Pragma("omp simd") for (long c = 0; c < width; ++c) to[c] = gc_store_bf16(from[c]);
}

// Rows of a matrix; zeros beside and below them.
template <long W, class Element>
static void fill(float* to, const Element* from, const view& v, long rows, long width) {
  for (long r = 0; r < rows; ++r) {
    copy_row<W>(to + r * W, from + r * v.row, width);
    for (long c = width; c < W; ++c) to[r * W + c] = 0;
  }
  clear<W>(to + rows * W, gc_least(up_to(rows, kGroup), kRows) - rows);
}

// The same transposed; zeros behind the last row. What is not f32 becomes that in `buffer`, of kRows rows.
template <long W, class Element>
static void fill_transposed(float* to, const Element* from, const view& v, long rows, long width, float* buffer) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    gc_transpose(to, kTile, from, v.row, rows, width);
  } else {
    fill<W>(buffer, from, v, rows, width);
    gc_transpose(to, kTile, (const float*)buffer, W, rows, width);
  }
  if (rows == kTile) return;
  for (long c = 0; c < width; ++c)
    for (long r = rows; r < kTile; ++r) to[c * kTile + r] = 0;
}

template <long W, class Element>
static void store(Element* to, const float* from, const view& v, long rows, long width) {
  for (long r = 0; r < rows; ++r) copy_row<W>(to + r * v.row, from + r * W, width);
}

GC_INLINE bool mask_element(bool open) { return open; }
GC_INLINE float mask_element(float added) { return added; }
GC_INLINE float mask_element(gc_bf16 added) { return gc_load(added); }

// What a mask says of one query's keys in a tile.
template <class Mask, long kStep>
struct mask_row {
  decltype(mask_element(Mask())) values[kTile];
  [[gnu::always_inline]] void fetch(const Mask* mask, long seen) {
    for (long c = 0; c < seen; ++c) values[c] = mask_element(mask[c * kStep]);
    for (long c = seen; c < up_to(seen, kLanes); ++c) values[c] = 0;
  }
  [[gnu::always_inline]] const Mask* advanced(const Mask* mask, long query, long key, const sizes& s) const {
    return mask + query * s.mask_query + key * kStep;
  }
  [[gnu::always_inline]] float masked(long key, float score, const sizes& s) const {
    if constexpr (sizeof(Mask) == 1) return values[key] ? score * s.scale : s.hidden;
    else return gc_fused(score, s.scale, values[key]);
  }
  [[gnu::always_inline]] bool open(long key) const {
    if constexpr (sizeof(Mask) == 1) return values[key];
    else return true;
  }
};
template <long kStep>
struct mask_row<no_mask, kStep> {
  [[gnu::always_inline]] void fetch(const no_mask*, long) {}
  [[gnu::always_inline]] const no_mask* advanced(const no_mask* mask, long, long, const sizes&) const { return mask; }
  [[gnu::always_inline]] float masked(long, float score, const sizes& s) const { return score * s.scale; }
  [[gnu::always_inline]] bool open(long) const { return true; }
};

// What dropout does to one query's keys in a tile: factors of 0 and kept_scale from their bits, none where all are kept.
template <class Kept>
struct kept_row {
  float factors[kTile];
  [[gnu::always_inline]] void fetch(const Kept* kept, const sizes& s, long batch, long query, long key, long seen) {
    const unsigned char* bytes = kept + (batch * s.queries + query) * s.kept_row + key / 8;
    for (long c = 0; c < seen; c += 8) {
      const unsigned byte = bytes[c / 8];
      _Pragma("omp simd") for (int l = 0; l < 8; ++l) factors[c + l] = (byte >> l & 1) != 0 ? s.kept_scale : 0.0f;
    }
    for (long c = up_to(seen, 8); c < up_to(seen, kLanes); ++c) factors[c] = 0;
  }
  [[gnu::always_inline]] float dropped(long key, float x) const { return factors[key] == 0 ? 0.0f : x * factors[key]; }
};
template <>
struct kept_row<no_mask> {
  [[gnu::always_inline]] void fetch(const no_mask*, const sizes&, long, long, long, long) {}
  [[gnu::always_inline]] float dropped(long, float x) const { return x; }
};

// Weights of a tile of which dropout leaves some.
GC_INLINE void drop(const sizes&, const place&, const no_mask*, long, long, long, float*) {}
template <class Kept>
static void drop(const sizes& s, const place& p, const Kept* kept, long batch, long query, long key, float* weights) {
  for (long r = 0; r < p.queries; ++r) {
    const long seen = p.seen(r);
    kept_row<Kept> of_row;
    of_row.fetch(kept, s, batch, query + r, key, seen);
    float* row = weights + r * kTile;
    for (long c = 0; c < seen; c += kLanes)
      _Pragma("omp simd") for (int l = 0; l < kLanes; ++l) row[c + l] = of_row.dropped(c + l, row[c + l]);
  }
}

// Behind the keys that a query sees: a group's sums go so far.
GC_INLINE void close_row(float* row, long seen) {
  for (long c = up_to(seen, kLanes); c < gc_least(up_to(seen, kLanes) + kLanes, kTile); ++c) row[c] = 0;
}

// What the forward pass multiplies, by registers of f32.
template <long W>
struct register_operands {
  alignas(64) float q[kRows * W], k[W * kTile], v[kRows * W];

  template <class Element>
  void take_queries(const sizes& s, const Element* queries, long count) {
    fill<W>(q, queries, s.q, count, s.width);
  }
  template <class Element>
  void take_keys(const sizes& s, const Element* keys, const Element* values, long count) {
    fill_transposed<W>(k, keys, s.k, count, s.width, v);
    fill<W>(v, values, s.v, count, s.value_width);
  }
  void dot(const sizes& s, const place& p, float* scores) const { gc_attention::dot<W>(p, s.width, q, k, scores); }
  void mix(const sizes& s, const place& p, const float* weights, float* y) {
    gc_attention::mix<W>(p, s.value_width, weights, v, y);
  }
};

// What multiplies matrices of a type; tiles.h has others for bf16.
template <long W>
struct register_gradients;
template <long W, class Element>
struct operands_of {
  typedef register_operands<W> of_result;
  typedef register_gradients<W> of_gradients;
};

// What the forward pass knows of a tile of queries.
template <long W>
struct query_rows {
  alignas(64) float y[kRows * W], scores[kRows * kTile], sums[kTile * kLanes];
  float top[kTile], best[kTile], factor[kTile];
};

// Products become scores, -inf behind the first `open` lanes where that is asked.
template <bool kAsks, class Row>
GC_INLINE void mask_lanes(const sizes& s, const Row& of_row, long c, int open, float* row, float* best) {
  _Pragma("omp simd") for (int l = 0; l < kLanes; ++l) {
    const float masked = of_row.masked(c + l, row[c + l], s), score = !kAsks || l < open ? masked : -gc_infinity32;
    row[c + l] = score;
    best[l] = gc_maximum(best[l], score);
  }
}

// Scores after scale and mask, and each row's largest so far.
template <long W, class Mask, long kStep>
static void mask_scores(const sizes& s, const place& p, const Mask* mask, long query, long key, query_rows<W>& t) {
  for (long r = 0; r < p.queries; ++r) {
    const long seen = p.seen(r);
    float *row = t.scores + r * kTile, best[kLanes];
    mask_row<Mask, kStep> of_row;
    of_row.fetch(of_row.advanced(mask, query + r, key, s), seen);
    for (int l = 0; l < kLanes; ++l) best[l] = t.top[r];
    long c = 0;
    for (; c + kLanes <= seen; c += kLanes) mask_lanes<false>(s, of_row, c, kLanes, row, best);
    if (c < seen) mask_lanes<true>(s, of_row, c, (int)(seen - c), row, best);
    t.best[r] = gc_fold_maximum<kLanes>(best);
  }
}

// Scores become weights; what was summed before is scaled to the new maximum.
template <long W>
static void soften(const place& p, query_rows<W>& t) {
  _Pragma("omp simd") for (int r = 0; r < kTile; ++r) {
    const float best = t.best[r], finite = best == -gc_infinity32 ? 0.0f : best;
    t.factor[r] = gc_exp_below(t.top[r] - finite);
    t.top[r] = best;
    t.best[r] = finite;
  }
  for (long r = 0; r < p.queries; ++r) {
    const long seen = p.seen(r);
    const float finite = t.best[r], factor = t.factor[r];
    float *row = t.scores + r * kTile, *sums = t.sums + r * kLanes;
    _Pragma("omp simd") for (int l = 0; l < kLanes; ++l) sums[l] *= factor;
    for (long c = 0; c < seen; c += kLanes) {
      _Pragma("omp simd") for (int l = 0; l < kLanes; ++l) {
        const float weight = gc_exp_below(row[c + l] - finite);
        row[c + l] = weight;
        sums[l] += weight;
      }
    }
    close_row(row, seen);
    if (factor != 1.0f)
      for (long c = 0; c < W; ++c) t.y[r * W + c] *= factor;
  }
}

template <long W, long kStep, class Element, class Mask, class Kept>
static void forward(const sizes& s, const Element* q, const Element* k, const Element* v, const Mask* mask, const Kept* kept,
                    Element* y, float* top, float* sum, long first, long last) {
  const subnormals_as_zeros zeros;
  const long tiles = (s.queries + kTile - 1) / kTile;
  query_rows<W> t;
  typename operands_of<W, Element>::of_result operands;
  for (long task = first; task < last; ++task) {
    const long batch = task / tiles, query = task % tiles * kTile, queries = gc_least(s.queries - query, kTile);
    const Element *keys = matrix_of(k, s.k, s, batch), *values = matrix_of(v, s.v, s, batch);
    const Mask* masks = mask + batch_offset(s, s.mask_batch, batch);
    operands.take_queries(s, matrix_of(q, s.q, s, batch) + query * s.q.row, queries);
    clear<W>(t.y, kRows);
    for (long r = 0; r < kTile; ++r) t.top[r] = t.best[r] = -gc_infinity32;
    clear<kLanes>(t.sums, queries);
    const long end = s.causal ? gc_least(s.keys, query + queries) : s.keys;
    for (long key = 0; key < end; key += kTile) {
      const place p(s, query, key);
      operands.take_keys(s, keys + key * s.k.row, values + key * s.v.row, p.keys);
      operands.dot(s, p, t.scores);
      mask_scores<W, Mask, kStep>(s, p, masks, query, key, t);
      soften<W>(p, t);
      drop(s, p, kept, batch, query, key, t.scores);
      operands.mix(s, p, t.scores, t.y);
    }
    for (long r = 0; r < queries; ++r) {
      const float total = gc_fold_sum<kLanes>(t.sums + r * kLanes);
      const float factor = s.closed_rows_are_zero && total == 0 ? 0.0f : 1 / total;
      top[batch * s.queries + query + r] = t.top[r];
      sum[batch * s.queries + query + r] = total;
      for (long c = 0; c < s.value_width; ++c) t.y[r * W + c] *= factor;
    }
    store<W>(matrix_of(y, s.y, s, batch) + query * s.y.row, t.y, s.y, queries, s.value_width);
  }
}

}  // namespace gc_attention
