// The gradient of attention, after stream.h: a task owns a head and goes through its tiles of scores, which are made once for all
// five products.
#pragma once

namespace gc_attention {

// What the gradient multiplies, by registers of f32: v is needed but transposed, and dq is where the tile of queries has its sums.
template <long W>
struct register_gradients {
  alignas(64) float k[kRows * W], k_transposed[W * kTile], v_transposed[W * kTile], q[kRows * W], dy[kRows * W], dq[kRows * W];

  template <class Element>
  void take_keys(const sizes& s, const Element* keys, const Element* values, long count) {
    fill_transposed<W>(v_transposed, values, s.v, count, s.value_width, k);
    fill_transposed<W>(k_transposed, keys, s.k, count, s.width, k);
    fill<W>(k, keys, s.k, count, s.width);
  }
  template <class Element>
  void take_queries(const sizes& s, const Element* queries, const Element* dys, long count) {
    fill<W>(q, queries, s.q, count, s.width);
    fill<W>(dy, dys, s.y, count, s.value_width);
  }
  void dot(const sizes& s, const place& p, float* weights, float* gradients) const {
    gc_attention::dot<W>(p, s.width, q, k_transposed, weights);
    gc_attention::dot<W>(p, s.value_width, dy, v_transposed, gradients);
  }
  void mix(const sizes& s, const place& p, const float* weights, const float* gradients, float* dk, float* dv) const {
    mix_transposed<W>(p, s.value_width, weights, dy, dv);
    mix_transposed<W>(p, s.width, gradients, q, dk);
  }
  void take_gradients(const place&, const float*) {}
  // Adds to what the rows of dq hold after other keys.
  void add_queries(const sizes& s, const place& p, const float* gradients, float* rows, const view& v, bool adds) {
    if (adds) fill<W>(dq, rows, v, p.queries, s.width);
    else clear<W>(dq, kRows);
    gc_attention::mix<W>(p, s.width, gradients, k, dq);
    store<W>(rows, dq, v, p.queries, s.width);
  }
};

template <long W>
struct key_rows {
  alignas(64) float dk[kRows * W], dv[kRows * W], weights[kRows * kTile], gradients[kRows * kTile];
};
// Of each row the maximum and the sum of the forward pass, and delta = sum(dy * y).
struct statistics {
  const float *top, *sum, *delta;
};

// A row's probabilities are exp(score - finite) * inverse.
struct row_statistics {
  float finite, inverse, delta;
};
template <bool kAsks, class Row, class KeptRow>
GC_INLINE void differentiate_lanes(const sizes& s, const Row& of_row, const KeptRow& kept, const row_statistics& of, long c,
                                   int open, float* weights, float* gradients) {
  _Pragma("omp simd") for (int l = 0; l < kLanes; ++l) {
    const float score = of_row.masked(c + l, weights[c + l], s), p = gc_exp(score - of.finite) * of.inverse;
    const float gradient = p * (kept.dropped(c + l, gradients[c + l]) - of.delta) * s.scale;
    weights[c + l] = !kAsks || l < open ? kept.dropped(c + l, p) : 0.0f;
    gradients[c + l] = (!kAsks || l < open) & of_row.open(c + l) ? gradient : 0.0f;
  }
}

// Scores become what v is multiplied by, probabilities of which dropout leaves some, and dp = dy v the gradients of what q k was.
template <long W, class Mask, long kStep, class Kept>
static void differentiate(const sizes& s, const place& p, const Mask* mask, const Kept* kept, const statistics& of, long batch,
                          long query, long key, key_rows<W>& t) {
  for (long r = 0; r < p.queries; ++r) {
    const long seen = p.seen(r);
    const float top = of.top[query + r], sum = of.sum[query + r], delta = of.delta[query + r];
    float *weights = t.weights + r * kTile, *gradients = t.gradients + r * kTile;
    mask_row<Mask, kStep> of_row;
    of_row.fetch(of_row.advanced(mask, query + r, key, s), seen);
    kept_row<Kept> of_kept;
    of_kept.fetch(kept, s, batch, query + r, key, seen);
    const row_statistics of_scores = {top == -gc_infinity32 ? 0.0f : top, s.closed_rows_are_zero && sum == 0 ? 0.0f : 1 / sum,
                                      delta};
    long c = 0;
    for (; c + kLanes <= seen; c += kLanes)
      differentiate_lanes<false>(s, of_row, of_kept, of_scores, c, kLanes, weights, gradients);
    if (c < seen) differentiate_lanes<true>(s, of_row, of_kept, of_scores, c, (int)(seen - c), weights, gradients);
    close_row(weights, seen);
    close_row(gradients, seen);
  }
}

// Of a head the sums of dq: the results themselves where they are f32, else kQueries rows that are rounded once.
template <long W, long kQueries, class Element>
struct query_sums {
  alignas(64) float rows[kQueries * W];
  view all{0, {}, W};
  float* begin(Element*) { return rows; }
  const view& lie(const view&) const { return all; }
  void end(Element* dqs, const sizes& s) const { store<W>(dqs, rows, s.dq, s.queries, s.width); }
};
template <long W, long kQueries>
struct query_sums<W, kQueries, float> {
  float* begin(float* dqs) { return dqs; }
  const view& lie(const view& dq) const { return dq; }
  void end(float*, const sizes&) const {}
};

// Matrices of one head.
template <class Element, class Mask>
struct head {
  const Element *q, *k, *v, *dy;
  const Mask* mask;
  statistics of;
};

// The tile of scores of some queries and keys, of which `t` gets weights and gradients.
template <long W, long kStep, class Operands, class Element, class Mask, class Kept>
GC_INLINE void differentiate_tile(const sizes& s, const place& p, const head<Element, Mask>& h, const Kept* kept, long batch,
                                  long query, long key, Operands& operands, key_rows<W>& t) {
  operands.take_queries(s, h.q + query * s.q.row, h.dy + query * s.y.row, p.queries);
  operands.dot(s, p, t.weights, t.gradients);
  differentiate<W, Mask, kStep>(s, p, h.mask, kept, h.of, batch, query, key, t);
  operands.take_gradients(p, t.gradients);
}

// With kQueries of 0 no sums of all queries are kept: dq has a turn of its own, which makes the scores again. Its sums are the
// same.
template <long W, long kQueries, long kStep, class Element, class Mask, class Kept>
static void backward(const sizes& s, const Element* q, const Element* k, const Element* v, const Element* dy, const float* top,
                     const float* sum, const float* delta, const Mask* mask, const Kept* kept, Element* dq, Element* dk,
                     Element* dv, long first, long last) {
  const subnormals_as_zeros zeros;
  key_rows<W> t;
  typename operands_of<W, Element>::of_gradients operands;
  constexpr bool kOwnTurn = kQueries == 0;
  query_sums<W, kOwnTurn ? kRows : kQueries, Element> all_sums;
  for (long batch = first; batch < last; ++batch) {
    const long rows = batch * s.queries;
    const head<Element, Mask> h = {matrix_of(q, s.q, s, batch),
                                   matrix_of(k, s.k, s, batch),
                                   matrix_of(v, s.v, s, batch),
                                   matrix_of(dy, s.y, s, batch),
                                   mask + batch_offset(s, s.mask_batch, batch),
                                   {top + rows, sum + rows, delta + rows}};
    Element *dqs = matrix_of(dq, s.dq, s, batch), *dks = matrix_of(dk, s.dk, s, batch), *dvs = matrix_of(dv, s.dv, s, batch);
    float* const sums = all_sums.begin(dqs);
    const view& of_sums = all_sums.lie(s.dq);
    for (long key = 0; key < s.keys; key += kTile) {
      const long count = gc_least(s.keys - key, kTile);
      operands.take_keys(s, h.k + key * s.k.row, h.v + key * s.v.row, count);
      clear<W>(t.dk, kRows);
      clear<W>(t.dv, kRows);
      for (long query = s.causal ? key / kTile * kTile : 0; query < s.queries; query += kTile) {
        const place p(s, query, key);
        differentiate_tile<W, kStep>(s, p, h, kept, batch, query, key, operands, t);
        operands.mix(s, p, t.weights, t.gradients, t.dk, t.dv);
        if (!kOwnTurn) operands.add_queries(s, p, t.gradients, sums + query * of_sums.row, of_sums, key != 0);
      }
      store<W>(dks + key * s.dk.row, t.dk, s.dk, count, s.width);
      store<W>(dvs + key * s.dv.row, t.dv, s.dv, count, s.value_width);
    }
    if (!kOwnTurn) {
      all_sums.end(dqs, s);
      continue;
    }
    for (long query = 0; query < s.queries; query += kTile) {
      const long count = gc_least(s.queries - query, kTile), end = s.causal ? gc_least(s.keys, query + count) : s.keys;
      for (long key = 0; key < end; key += kTile) {
        const place p(s, query, key);
        operands.take_keys(s, h.k + key * s.k.row, h.v + key * s.v.row, p.keys);
        differentiate_tile<W, kStep>(s, p, h, kept, batch, query, key, operands, t);
        operands.add_queries(s, p, t.gradients, sums, of_sums, key != 0);
      }
      store<W>(dqs + query * s.dq.row, sums, s.dq, count, s.width);
    }
  }
}

}  // namespace gc_attention
