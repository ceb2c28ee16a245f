// Attention by blocks that own a tile of rows and stream the others past it (Dao, "FlashAttention-2", 2023): no score is ever in
// memory. A kit (fma_kit.h, mma_kit.h) knows how a block of threads multiplies tiles and which thread has which element; what is
// computed with the elements stands here once. Sums run in the order of the stream, so a launch gives the same bits each time.
//
// A kit's Left is the block's own tile as dot() takes it: where it lies in shared memory, or the thread's part of it.
#pragma once

struct gc_no_mask {};

// Where a matrix lies in a buffer: rows are contiguous, `row` elements apart. Vectors of `vector_width` elements can be moved at
// once. Where it is narrow, its elements are counted in 31 bits.
struct gc_attention_view {
  long long offset, batch[4], row;
  int vector_width;
  bool narrow;
  GC_DEVICE long long at(int row_number, int column) const {
    return narrow ? row_number * (int)row + column : row_number * row + column;
  }
};

// One shape; the launch has it as constants. Strides of the mask are 0 where it repeats.
struct gc_attention_sizes {
  int queries, keys, width, value_width;  // of q and k [queries or keys, width], of v and y [..., value_width]
  bool causal, closed_rows_are_zero;
  double scale, hidden;  // hidden: the score where a bool mask is false
  double kept_scale;     // of what dropout keeps
  int kept_row;          // bytes of a query's bits
  int batch[4];
  long long mask_batch[4], mask_query, mask_key;
  gc_attention_view q, k, v, y;  // y: of gradients dy
  gc_attention_view dq, dk, dv;
};

GC_DEVICE float gc_infinity(float) { return gc_infinity32; }
GC_DEVICE double gc_infinity(double) { return gc_infinity64; }

// The tile of `tiles` that this block owns and its batch. Under the diagonal the longest streams come first.
struct gc_attention_place {
  int first, batch;
  GC_DEVICE gc_attention_place(int rows, int tile_rows, bool backwards) {
    const int tiles = (rows + tile_rows - 1) / tile_rows, tile = (int)blockIdx.x % tiles;
    first = (backwards ? tiles - 1 - tile : tile) * tile_rows;
    batch = (int)blockIdx.x / tiles;
  }
};

GC_DEVICE long long gc_batch_offset(const gc_attention_sizes& s, const long long (&strides)[4], int batch) {
  long long offset = 0;
#pragma unroll
  for (int d = 3; d >= 0; --d) {
    offset += batch % s.batch[d] * strides[d];
    batch /= s.batch[d];
  }
  return offset;
}

// The first row of the batch's matrix.
template <class T>
GC_DEVICE T* gc_matrix_of(T* buffer, const gc_attention_view& view, const gc_attention_sizes& s, int batch) {
  return buffer + view.offset + gc_batch_offset(s, view.batch, batch);
}

// Whether each query of a tile and each key of another are inside and, under the causal mask, see each other: then nothing of the
// kind is asked of an element.
GC_DEVICE bool gc_is_plain(const gc_attention_sizes& s, int query, int queries, int key, int keys) {
  return query + queries <= s.queries && key + keys <= s.keys && !(s.causal && key + keys - 1 > query);
}

// A product q k becomes the score after scale and mask; false where that is not the product's own. Outside, it is -inf.
template <bool kPlain, class V, class Mask>
GC_DEVICE bool gc_mask(const gc_attention_sizes& s, const Mask* mask, int query, int key, V& score) {
  score *= (V)s.scale;
  bool open = true;
  if (!kPlain && (query >= s.queries || key >= s.keys || (s.causal && key > query))) {
    score = -gc_infinity(V());
    return false;
  }
  if constexpr (gc_same<Mask, bool>) {
    open = mask[query * s.mask_query + key * s.mask_key];
    if (!open) score = (V)s.hidden;
  } else if constexpr (!gc_same<Mask, gc_no_mask>) {
    score += (V)gc_load(mask[query * s.mask_query + key * s.mask_key]);
  }
  return open;
}

// Whether dropout keeps the weight of a query and the key `first_key` + `further`, the first a multiple of 8: their bit in a
// batch's [queries, kept_row] bytes. All are kept where there is no dropout.
template <bool kPlain, class Kept>
GC_DEVICE bool gc_keeps(const gc_attention_sizes& s, const Kept* kept, int query, int first_key, unsigned further) {
  if constexpr (gc_same<Kept, gc_no_mask>) {
    return true;
  } else {
    if (!kPlain && (query >= s.queries || first_key + (int)further >= s.keys)) return false;
    return (kept[(long long)query * s.kept_row + (first_key / 8 + (int)(further / 8))] >> further % 8 & 1) != 0;
  }
}
template <class Kept>
GC_DEVICE const Kept* gc_kept_of(const gc_attention_sizes& s, const Kept* kept, int batch) {
  if constexpr (gc_same<Kept, gc_no_mask>) return kept;
  else return kept + (long long)batch * s.queries * s.kept_row;
}
// Weights that dropout leaves out become 0; kept_scale is for later.
template <bool kPlain, class Kit, class Kept>
GC_DEVICE void gc_drop_weights(const gc_attention_sizes& s, const Kept* kept, int query, int key, typename Kit::Scores& weights) {
  if constexpr (!gc_same<Kept, gc_no_mask>) {
#pragma unroll
    for (int i = 0; i < Kit::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Kit::kColumns; ++j)
        if (!gc_keeps<kPlain>(s, kept, query + Kit::row(i), key, (unsigned)Kit::column(j))) weights.at(i, j) = 0;
  }
}

// The vector from `column` on in a row of a matrix [rows, width]; zeros outside.
template <class Kit, int kVector>
GC_DEVICE void gc_fetch_part(gc_vector<typename Kit::T, kVector>& values, const typename Kit::T* from,
                             const gc_attention_view& view, int row, int column, int rows, int width) {
  typedef typename Kit::T T;
#pragma unroll
  for (int e = 0; e < kVector; ++e) values.at[e] = T();
  if (row >= rows) return;
  const T* line = from + view.at(row, column);
  if (view.vector_width % kVector == 0) {
    if (column < width) gc_move_vector(&values, (const gc_vector<T, kVector>*)line);
  } else {
#pragma unroll
    for (int e = 0; e < kVector; ++e)
      if (column + e < width) values.at[e] = line[e];
  }
}

// Rows [first, first + kRows) of a matrix [rows, width] to shared memory, in lines of kPitch; zeros outside.
template <class Kit, int kRows>
GC_DEVICE void gc_fill(typename Kit::Element* to, const typename Kit::T* from, const gc_attention_view& view, int first, int rows,
                       int width) {
  typedef typename Kit::T T;
  constexpr int kVector = 16 / (int)sizeof(T), kVectors = Kit::kWidth / kVector;
  constexpr int kRounds = (kRows * kVectors + Kit::kThreads - 1) / Kit::kThreads;
  constexpr int kAtOnce = Kit::kWidth > 128 && kRounds > 8 ? 8 : kRounds;  // wide sums leave few registers for what is on its way
#pragma unroll kAtOnce
  for (int i = 0; i < kRounds; ++i) {
    const int vector = (int)threadIdx.x + i * Kit::kThreads, row = vector / kVectors, column = vector % kVectors * kVector;
    if (kRows * kVectors % Kit::kThreads != 0 && row >= kRows) break;
    gc_vector<T, kVector> values;
    gc_fetch_part<Kit>(values, from, view, first + row, column, rows, width);
    Kit::put(to + row * Kit::kPitch + column, values);
  }
}

// The block's own tile, which has just been filled.
template <class Kit>
GC_DEVICE typename Kit::Left gc_own_of(const typename Kit::Element* own) {
  if (Kit::kHoldsLeft) __syncthreads();
  return typename Kit::Left(own);
}

// The kit's sums, each row times `factors`, to rows from `first` on of a matrix [rows, width].
template <class Kit>
GC_DEVICE void gc_store_rows(typename Kit::T* to, const gc_attention_view& view, const typename Kit::Output& sums,
                             const typename Kit::V (&factors)[Kit::kRows], int first, int rows, int width) {
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) {
    const int row = first + Kit::row(i);
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < Kit::kOutColumns; j += Kit::kOutVector) {
      const int column = Kit::out_column(j);
      typename Kit::V values[Kit::kOutVector];
#pragma unroll
      for (int e = 0; e < Kit::kOutVector; ++e) values[e] = sums.at(i, j + e) * factors[i];
      typename Kit::T* line = to + view.at(row, column);
      if (view.vector_width % Kit::kOutVector == 0) {
        if (column < width) gc_store_vector(line, values);
      } else {
#pragma unroll
        for (int e = 0; e < Kit::kOutVector; ++e)
          if (column + e < width) gc_put(line[e], values[e]);
      }
    }
  }
}

template <bool kPlain, class Kit, class Mask>
GC_DEVICE void gc_mask_scores(const gc_attention_sizes& s, const Mask* mask, int query, int key, typename Kit::Scores& scores) {
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Kit::kColumns; ++j) gc_mask<kPlain>(s, mask, query + Kit::row(i), key + Kit::column(j), scores.at(i, j));
}

// y, and of each row the largest score and the sum of exp(score - largest). A block owns queries.
template <class Kit, class Mask, class Kept>
GC_DEVICE void gc_attention(typename Kit::Forward& shared, const gc_attention_sizes& s, const typename Kit::T* q,
                            const typename Kit::T* k, const typename Kit::T* v, const Mask* mask, const Kept* kept,
                            typename Kit::T* y, typename Kit::V* top_of_row, typename Kit::V* sum_of_row) {
  typedef typename Kit::V V;
  const gc_attention_place p(s.queries, Kit::kOwn, s.causal);
  mask += gc_batch_offset(s, s.mask_batch, p.batch);
  kept = gc_kept_of(s, kept, p.batch);
  k = gc_matrix_of(k, s.k, s, p.batch);
  v = gc_matrix_of(v, s.v, s, p.batch);
  gc_fill<Kit, Kit::kOwn>(shared.own, gc_matrix_of(q, s.q, s, p.batch), s.q, p.first, s.queries, s.width);
  const typename Kit::Left own = gc_own_of<Kit>(shared.own);
  V top[Kit::kRows], sum[Kit::kRows];
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) top[i] = -gc_infinity(V()), sum[i] = 0;
  typename Kit::Output out;
  out.clear();
  const int end = s.causal && p.first + Kit::kOwn < s.keys ? p.first + Kit::kOwn : s.keys;
#pragma unroll 1
  for (int n = 0; n < end; n += Kit::kStream) {
    __syncthreads();
    gc_fill<Kit, Kit::kStream>(shared.stream[0], k, s.k, n, s.keys, s.width);
    gc_fill<Kit, Kit::kStream>(shared.stream[1], v, s.v, n, s.keys, s.value_width);
    __syncthreads();
    typename Kit::Scores scores;
    Kit::dot(scores, own, shared.stream[0], s.width);
    const bool plain = gc_is_plain(s, p.first, Kit::kOwn, n, Kit::kStream);
    if (plain) gc_mask_scores<true, Kit>(s, mask, p.first, n, scores);
    else gc_mask_scores<false, Kit>(s, mask, p.first, n, scores);
#pragma unroll
    for (int i = 0; i < Kit::kRows; ++i) {
      V best = top[i];
#pragma unroll
      for (int j = 0; j < Kit::kColumns; ++j) best = gc_maximum(best, scores.at(i, j));
      best = gc_combine_lanes<Kit::kRowLanes>(best, gc_combine_maximum());
      const V finite = best == -gc_infinity(V()) ? (V)0 : best, factor = Kit::exp(top[i] - finite);
      top[i] = best;
      sum[i] *= factor;
#pragma unroll
      for (int j = 0; j < Kit::kOutColumns; ++j) out.at(i, j) *= factor;
#pragma unroll
      for (int j = 0; j < Kit::kColumns; ++j) {
        V& score = scores.at(i, j);
        score = Kit::exp(score - finite);
        sum[i] += score;
      }
    }
    if (plain) gc_drop_weights<true, Kit>(s, kept, p.first, n, scores);
    else gc_drop_weights<false, Kit>(s, kept, p.first, n, scores);
    Kit::mix(out, scores, shared.stream[1], shared.weights, s.value_width);
  }
  V factors[Kit::kRows];
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) {
    const V total = gc_combine_lanes<Kit::kRowLanes>(sum[i], gc_combine_sum());
    factors[i] = s.closed_rows_are_zero && total == 0 ? (V)0 : 1 / total;
    if constexpr (!gc_same<Kept, gc_no_mask>) factors[i] *= (V)s.kept_scale;
    const int query = p.first + Kit::row(i);
    if (query < s.queries && Kit::column(0) == 0) {
      top_of_row[(long long)p.batch * s.queries + query] = top[i];
      sum_of_row[(long long)p.batch * s.queries + query] = total;
    }
  }
  gc_store_rows<Kit>(gc_matrix_of(y, s.y, s, p.batch), s.y, out, factors, p.first, s.queries, s.value_width);
}

// What the forward pass and delta = sum(dy * y) say of one query: its probabilities are exp(score - finite) * inverse.
template <class V>
struct gc_attention_row {
  V finite = 0, inverse = 0, delta = 0;
  // Reads, to be finished once they are there: many rows are on their way at once. Beyond the last query it is the last one again,
  // which gc_attention_pair does not use.
  GC_DEVICE void fetch(const gc_attention_sizes& s, const V* top, const V* sum, const V* deltas, int batch, int query) {
    const long long at = (long long)batch * s.queries + (query < s.queries ? query : s.queries - 1);
    finite = top[at], inverse = sum[at], delta = deltas[at];
  }
  GC_DEVICE void finish(const gc_attention_sizes& s) {
    if (finite == -gc_infinity(V())) finite = 0;
    inverse = s.closed_rows_are_zero && inverse == 0 ? (V)0 : 1 / inverse;
  }
};

// A product q k becomes what v is multiplied by, its probability unless that is dropped, and dp = dy v the gradient of the score
// before scale.
template <bool kPlain, class Kit, class Mask, class Kept, class V>
GC_DEVICE void gc_attention_pair(const gc_attention_sizes& s, const Mask* mask, const Kept* kept, const gc_attention_row<V>& row,
                                 int query, int first_key, int further, V& product, V& dp) {
  const int key = first_key + further;
  const bool open = gc_mask<kPlain>(s, mask, query, key, product), within = kPlain || query < s.queries;
  product = within ? Kit::exp(product - row.finite) * row.inverse : (V)0;
  if constexpr (gc_same<Kept, gc_no_mask>) {
    dp = open && within ? product * (dp - row.delta) : (V)0;
  } else {
    const bool keeps = gc_keeps<kPlain>(s, kept, query, first_key, (unsigned)further);
    dp = open && within ? product * ((keeps ? dp * (V)s.kept_scale : (V)0) - row.delta) : (V)0;
    product = keeps ? product * (V)s.kept_scale : (V)0;
  }
}
template <bool kPlain, class Kit, class Mask, class Kept, class V>
GC_DEVICE void gc_query_pairs(const gc_attention_sizes& s, const Mask* mask, const Kept* kept,
                              const gc_attention_row<V> (&rows)[Kit::kRows], int query, int key, typename Kit::Scores& scores,
                              typename Kit::Scores& gradients) {
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Kit::kColumns; ++j)
      gc_attention_pair<kPlain, Kit>(s, mask, kept, rows[i], query + Kit::row(i), key, Kit::column(j), scores.at(i, j),
                                     gradients.at(i, j));
}
template <bool kPlain, class Kit, class Mask, class Kept, class V>
GC_DEVICE void gc_key_pairs(const gc_attention_sizes& s, const Mask* mask, const Kept* kept,
                            const gc_attention_row<V> (&rows)[Kit::kColumns], int query, int key, typename Kit::Scores& scores,
                            typename Kit::Scores& gradients) {
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Kit::kColumns; ++j)
      gc_attention_pair<kPlain, Kit>(s, mask, kept, rows[j], query + Kit::column(j), key, Kit::row(i), scores.at(i, j),
                                     gradients.at(i, j));
}

// dq. A block owns queries.
template <class Kit, class Mask, class Kept>
GC_DEVICE void gc_attention_query_gradient(typename Kit::Backward& shared, const gc_attention_sizes& s, const typename Kit::T* q,
                                           const typename Kit::T* k, const typename Kit::T* v, const typename Kit::T* dy,
                                           const typename Kit::V* top, const typename Kit::V* sum, const typename Kit::V* delta,
                                           const Mask* mask, const Kept* kept, typename Kit::T* dq) {
  typedef typename Kit::V V;
  const gc_attention_place p(s.queries, Kit::kOwn, s.causal);
  mask += gc_batch_offset(s, s.mask_batch, p.batch);
  kept = gc_kept_of(s, kept, p.batch);
  k = gc_matrix_of(k, s.k, s, p.batch);
  v = gc_matrix_of(v, s.v, s, p.batch);
  gc_fill<Kit, Kit::kOwn>(shared.own[0], gc_matrix_of(q, s.q, s, p.batch), s.q, p.first, s.queries, s.width);
  gc_fill<Kit, Kit::kOwn>(shared.own[1], gc_matrix_of(dy, s.y, s, p.batch), s.y, p.first, s.queries, s.value_width);
  const typename Kit::Left own = gc_own_of<Kit>(shared.own[0]), other = gc_own_of<Kit>(shared.own[1]);
  gc_attention_row<V> rows[Kit::kRows];
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) rows[i].fetch(s, top, sum, delta, p.batch, p.first + Kit::row(i));
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) rows[i].finish(s);
  typename Kit::Output out;
  out.clear();
  const int end = s.causal && p.first + Kit::kOwn < s.keys ? p.first + Kit::kOwn : s.keys;
#pragma unroll 1
  for (int n = 0; n < end; n += Kit::kStream) {
    __syncthreads();
    gc_fill<Kit, Kit::kStream>(shared.stream[0], k, s.k, n, s.keys, s.width);
    gc_fill<Kit, Kit::kStream>(shared.stream[1], v, s.v, n, s.keys, s.value_width);
    __syncthreads();
    typename Kit::Scores scores, gradients;
    Kit::dot(scores, own, shared.stream[0], s.width);
    Kit::dot(gradients, other, shared.stream[1], s.value_width);
    if (gc_is_plain(s, p.first, Kit::kOwn, n, Kit::kStream))
      gc_query_pairs<true, Kit>(s, mask, kept, rows, p.first, n, scores, gradients);
    else gc_query_pairs<false, Kit>(s, mask, kept, rows, p.first, n, scores, gradients);
    Kit::mix(out, gradients, shared.stream[0], shared.weights, s.width);
  }
  V factors[Kit::kRows];
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) factors[i] = (V)s.scale;
  gc_store_rows<Kit>(gc_matrix_of(dq, s.dq, s, p.batch), s.dq, out, factors, p.first, s.queries, s.width);
}

// dk, dv, or first the one and then the other. A block owns keys; the scores stand transposed, a row for each key.
template <class Kit, bool kOfKeys, bool kOfValues, class Mask, class Kept>
GC_DEVICE void gc_attention_key_gradient(typename Kit::Backward& shared, const gc_attention_sizes& s, const typename Kit::T* q,
                                         const typename Kit::T* k, const typename Kit::T* v, const typename Kit::T* dy,
                                         const typename Kit::V* top, const typename Kit::V* sum, const typename Kit::V* delta,
                                         const Mask* mask, const Kept* kept, typename Kit::T* made, typename Kit::T* also = 0) {
  typedef typename Kit::V V;
  const gc_attention_place p(s.keys, Kit::kOwn, false);
  mask += gc_batch_offset(s, s.mask_batch, p.batch);
  kept = gc_kept_of(s, kept, p.batch);
  q = gc_matrix_of(q, s.q, s, p.batch);
  dy = gc_matrix_of(dy, s.y, s, p.batch);
  gc_fill<Kit, Kit::kOwn>(shared.own[0], gc_matrix_of(k, s.k, s, p.batch), s.k, p.first, s.keys, s.width);
  gc_fill<Kit, Kit::kOwn>(shared.own[1], gc_matrix_of(v, s.v, s, p.batch), s.v, p.first, s.keys, s.value_width);
  const typename Kit::Left own = gc_own_of<Kit>(shared.own[0]), other = gc_own_of<Kit>(shared.own[1]);
  typename Kit::Output key_sums, value_sums;
  if (kOfKeys) key_sums.clear();
  if (kOfValues) value_sums.clear();
#pragma unroll 1
  for (int m = s.causal ? p.first / Kit::kStream * Kit::kStream : 0; m < s.queries; m += Kit::kStream) {
    __syncthreads();
    gc_fill<Kit, Kit::kStream>(shared.stream[0], q, s.q, m, s.queries, s.width);
    gc_fill<Kit, Kit::kStream>(shared.stream[1], dy, s.y, m, s.queries, s.value_width);
    __syncthreads();
    gc_attention_row<V> rows[Kit::kColumns];
#pragma unroll
    for (int j = 0; j < Kit::kColumns; ++j) rows[j].fetch(s, top, sum, delta, p.batch, m + Kit::column(j));
    typename Kit::Scores scores, gradients;
    Kit::dot(scores, own, shared.stream[0], s.width);
    if constexpr (kOfKeys) Kit::dot(gradients, other, shared.stream[1], s.value_width);
    else gradients.clear();
#pragma unroll
    for (int j = 0; j < Kit::kColumns; ++j) rows[j].finish(s);
    if (gc_is_plain(s, m, Kit::kStream, p.first, Kit::kOwn))
      gc_key_pairs<true, Kit>(s, mask, kept, rows, m, p.first, scores, gradients);
    else gc_key_pairs<false, Kit>(s, mask, kept, rows, m, p.first, scores, gradients);
    if (kOfValues) Kit::mix(value_sums, scores, shared.stream[1], shared.weights, s.value_width);
    if (kOfKeys) Kit::mix(key_sums, gradients, shared.stream[0], shared.weights, s.width);
  }
  V factors[Kit::kRows];
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) factors[i] = (V)s.scale;
  if (kOfKeys) gc_store_rows<Kit>(gc_matrix_of(made, s.dk, s, p.batch), s.dk, key_sums, factors, p.first, s.keys, s.width);
#pragma unroll
  for (int i = 0; i < Kit::kRows; ++i) factors[i] = 1;
  if (kOfValues)
    gc_store_rows<Kit>(gc_matrix_of(kOfKeys ? also : made, s.dv, s, p.batch), s.dv, value_sums, factors, p.first, s.keys,
                       s.value_width);
}
