// Attention as one op: softmax(q k^T) v without the scores ever being a value. Targets with a kernel for it take the node as it is
// (TargetInfo::legal_composite); everywhere else it is its expansion. Its matrices may lie as views in larger values
// (ir/matrices.h); what is computed knows nothing of it.
#pragma once

#include <limits>

#include "ir/matrices.h"
#include "ir/ops/pointwise.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"
#include "ir/packed_bits.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kAttentionAttributes[] = {
    AttributeSpec::optional("scale", AttributeType::real, 1),
    AttributeSpec::optional("causal", AttributeType::flag),
    AttributeSpec::optional("hidden", AttributeType::real, -std::numeric_limits<double>::infinity()),
    AttributeSpec::optional("closed_rows_are_zero", AttributeType::flag),
    AttributeSpec::optional("dropout", AttributeType::real, 0),
    AttributeSpec::optional(kOperandViews, AttributeType::views),
    AttributeSpec::optional(kResultViews, AttributeType::views),
    AttributeSpec::optional(kResults, AttributeType::integers)};

/// Positions of the operands of `attention` and of its gradient; mask and kept may be absent.
enum AttentionOperand : std::size_t { kQuery, kKey, kValue, kAttentionMask, kAttentionKept };
enum AttentionGradientOperand : std::size_t {
  kResultGradient = 3,
  kForwardResult,
  kRowTop,
  kRowSum,
  kRowDelta,
  kGradientMask,
  kGradientKept
};

inline Integers all_axes(std::int64_t rank) {
  Integers axes;
  for (std::int64_t i = 0; i < rank; ++i) axes.push_back(i);
  return axes;
}

/// [batch..., S] in the type that rows are computed in.
inline TensorType attention_rows(DType dtype, const Shape& scores) {
  return {compute_type(dtype), Shape(scores.begin(), scores.end() - 1)};
}

/// [batch..., S, T] of q, k and v, whose shapes it checks.
inline Shape attention_scores_shape(const InferContext& c) {
  const TensorType &q = c.operand(kQuery), &k = c.operand(kKey), &v = c.operand(kValue);
  const auto batch = [](const TensorType& x) { return Shape(x.shape.begin(), x.shape.end() - 2); };
  c.require(q.rank() >= 2 && is_float(q.dtype) && k.rank() == q.rank() && v.rank() == q.rank() && k.dtype == q.dtype &&
                v.dtype == q.dtype && batch(k) == batch(q) && batch(v) == batch(q) && k.shape.back() == q.shape.back() &&
                k.shape[k.shape.size() - 2] == v.shape[v.shape.size() - 2],
            "query is ", shown(q), ", key ", shown(k), ", value ", shown(v),
            "; wanted [batch..., s, d], [batch..., t, d] and [batch..., t, e]");
  Shape scores = q.shape;
  scores.back() = k.shape[k.shape.size() - 2];
  return scores;
}

inline void check_attention_mask(const InferContext& c, const Shape& scores, std::size_t mask) {
  if (!c.has(mask)) return;
  const TensorType& m = c.operand(mask);
  bool fits = m.shape.size() == scores.size() && (m.dtype == DType::boolean || is_float(m.dtype));
  for (std::size_t d = 0; fits && d < scores.size(); ++d) fits = m.shape[d] == 1 || m.shape[d] == scores[d];
  c.require(fits, "mask is ", shown(m), ", wanted bool or floating point, each dimension 1 or that of the scores [", shown(scores),
            "]");
}

/// One bit for each score under dropout, nothing else.
inline void check_attention_kept(const InferContext& c, Shape scores, std::size_t kept) {
  const double dropout = c.attributes.real("dropout");
  c.require(dropout >= 0 && dropout < 1, "dropout is ", dropout, ", wanted 0 to below 1");
  if (dropout == 0) {
    c.require(!c.has(kept), "without dropout there is nothing to be kept");
    return;
  }
  scores.back() = bytes_of_bits(scores.back());
  const TensorType wanted{DType::u8, scores};
  c.require(c.has(kept) && c.operand(kept) == wanted, "kept is ", c.has(kept) ? to_string(c.operand(kept)) : "absent", ", wanted ",
            shown(wanted));
}

/// What dropout leaves of a value for each score: 0, or x / (1 - dropout); x itself without `kept`.
inline Var attention_dropped(Builder& b, Var kept, Var x, const Attributes& a) {
  if (!kept) return x;
  return b.select(unpack_bits(b, kept, x.shape().back()), x * (1 / (1 - a.real("dropout"))), b.like(x, 0));
}

/// Scores after scale and mask, in the compute type, and where they are the product's own: null for everywhere.
struct AttentionScores {
  Var masked, open;
};
inline AttentionScores attention_scores(Builder& b, Var q, Var k, Var mask, const Attributes& a) {
  const DType compute = compute_type(q.dtype());
  AttentionScores s{b.matmul(b.cast(q, compute), b.cast(k, compute), false, true) * a.real("scale"), {}};
  const Shape& shape = s.masked.shape();
  if (mask && is_float(mask.dtype())) s.masked = s.masked + b.broadcast(b.cast(mask, compute), shape, all_axes(mask.rank()));
  if (mask && mask.dtype() == DType::boolean) {
    s.open = b.broadcast(mask, shape, all_axes(mask.rank()));
    s.masked = choose(s.open, s.masked, a.real("hidden"));
  }
  if (a.flag("causal")) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    Var seen = b.iota({DType::i64, shape}, rank - 1) <= b.iota({DType::i64, shape}, rank - 2);
    s.masked = choose(seen, s.masked, -std::numeric_limits<double>::infinity());
    s.open = s.open ? kAnd(s.open, seen) : seen;
  }
  return s;
}

/// exp(score - top) of each row and what divides it. Where no key is open, top is -inf and all weights are 0.
struct AttentionWeights {
  Var weights, divisor;  ///< [batch..., S, T] and [batch..., S]
  Var probabilities(Builder& b) const { return weights / b.unreduce(divisor, weights.shape(), {weights.rank() - 1}); }
};
inline Var attention_weights(Builder& b, Var masked, Var top) {
  Var finite = choose(top == b.like(top, -std::numeric_limits<double>::infinity()), b.like(top, 0), top);
  return kExp(masked - b.unreduce(finite, masked.shape(), {masked.rank() - 1}));
}
inline Var attention_divisor(Builder& b, Var sum, const Attributes& a) {
  return a.flag("closed_rows_are_zero") ? choose(sum == b.like(sum, 0), b.like(sum, 1), sum) : sum;
}

/// What a gradient's rule and its expansion share. `more` is added to the gradient of the masked scores, or null.
struct AttentionGradients {
  Var q, k, v, masked;
};
struct AttentionGradientOperands {
  Var q, k, v, dy, top, sum, delta, mask, kept;
};
inline AttentionGradients attention_gradients(Builder& b, const AttentionGradientOperands& o, const Attributes& a, Var more = {}) {
  const DType compute = compute_type(o.q.dtype());
  const AttentionScores s = attention_scores(b, o.q, o.k, o.mask, a);
  const Integers last{s.masked.rank() - 1};
  const AttentionWeights w{attention_weights(b, s.masked, o.top), attention_divisor(b, o.sum, a)};
  Var p = w.probabilities(b), dy = b.cast(o.dy, compute), dp = b.matmul(dy, b.cast(o.v, compute), false, true);
  Var dropped = attention_dropped(b, o.kept, p, a);
  dp = attention_dropped(b, o.kept, dp, a);
  Var masked = p * (dp - b.unreduce(o.delta, dp.shape(), last));
  if (more) masked = masked + more;
  Var scaled = (s.open ? choose(s.open, masked, 0) : masked) * a.real("scale");
  return {b.cast(b.matmul(scaled, b.cast(o.k, compute)), o.q.dtype()),
          b.cast(b.matmul(scaled, b.cast(o.q, compute), true), o.k.dtype()), b.cast(b.matmul(dropped, dy, true), o.v.dtype()),
          masked};
}

/// What the row statistics themselves pass on to the scores, where somebody asks for their gradient.
inline Var statistics_gradient(Builder& b, Var q, Var k, Var mask, Var sum, Var top, Var dtop, Var dsum, const Attributes& a) {
  const AttentionScores s = attention_scores(b, q, k, mask, a);
  const std::int64_t last = s.masked.rank() - 1;
  const Shape& shape = s.masked.shape();
  Var first = b.unreduce(b.reduce(kArgMax, s.masked, {last}), shape, {last}) == b.iota({DType::i64, shape}, last);
  Var at_top = b.unreduce(dtop - dsum * sum, shape, {last});
  return attention_weights(b, s.masked, top) * b.unreduce(dsum, shape, {last}) + choose(first, at_top, 0);
}

inline void attention_gradient_rule(GradientContext& g) {
  Builder& b = g.builder();
  const Attributes& attributes = g.attributes();
  const DType compute = compute_type(g.operand(kQuery).dtype());
  const auto optional = [&](std::size_t i) { return i < g.node().operands.size() && g.node().operands[i] ? g.operand(i) : Var(); };
  Var mask = optional(kAttentionMask), kept = optional(kAttentionKept);
  const bool masked = static_cast<bool>(mask);
  Var y = g.result(), dy = g.dy();
  Var product = b.cast(dy, compute) * b.cast(y, compute);
  const AttentionGradientOperands o{g.operand(kQuery),
                                    g.operand(kKey),
                                    g.operand(kValue),
                                    dy,
                                    g.result(1),
                                    g.result(2),
                                    b.sum(product, {product.rank() - 1}),
                                    mask,
                                    kept};
  if (g.has_dy(1) || g.has_dy(2) || (masked && g.wants(kAttentionMask))) {
    Var more =
        g.has_dy(1) || g.has_dy(2) ? statistics_gradient(b, o.q, o.k, mask, o.sum, o.top, g.dy(1), g.dy(2), attributes) : Var();
    const AttentionGradients d = attention_gradients(b, o, attributes, more);
    g.add(kQuery, d.q);
    g.add(kKey, d.k);
    g.add(kValue, d.v);
    if (!masked || !g.wants(kAttentionMask)) return;
    Integers repeated;
    Var dmask = attributes.flag("causal") ? attention_scores(b, o.q, o.k, mask, attributes).open : Var();
    dmask = dmask ? choose(dmask, d.masked, 0) : d.masked;
    for (std::int64_t i = 0; i < mask.rank(); ++i)
      if (mask.dim(i) != dmask.dim(i)) repeated.push_back(i);
    g.add(kAttentionMask, b.cast(b.sum(dmask, repeated, true), mask.dtype()));
    return;
  }
  std::vector<Var> operands{o.q, o.k, o.v, o.dy, y, o.top, o.sum, o.delta};
  if (masked || kept) operands.push_back(mask);
  if (kept) operands.push_back(kept);
  const std::vector<Var> d = b.apply_many(kAttentionGradient, operands, attributes);
  for (std::size_t i = 0; i < d.size(); ++i) g.add(i, d[i]);
}

inline constexpr Sample kAttentionSamples[] = {
    {"f64[2,3,4] f64[2,5,4] f64[2,5,2]", "{scale=0.5}"},
    {"f64[2,4,2] f64[2,4,2] f64[2,4,3]", "{scale=0.7, causal=true}"},
    {"f64[2,2,3,2] f64[2,2,4,2] f64[2,2,4,3] f64[2,1,1,4]", "{scale=0.5}"},
    {"f64[1,3,2] f64[1,5,2] f64[1,5,2] f64[1,3,5]", "{causal=true}"},
    {"f64[2,3,2] f64[2,4,2] f64[2,4,2] bool[1,3,4]", "{hidden=-3.0}"},
    {"f64[2,5,2] f64[2,5,2] f64[2,5,2] bool[2,5,5]", "{closed_rows_are_zero=true, causal=true}"},
    {"f64[2,2,3,2] f64[2,2,11,2] f64[2,2,11,3] f64[2,1,1,11] u8[2,2,3,2]", "{scale=0.1, dropout=0.25}", 0, 3},
    {"f64[6,18] f64[6,18] f64[6,18]",  // [batch, row, which, head, column]
     "{operand_views=[(2,2,3,3):(54,3,18,1), (2,2,3,3):(54,3,18,1)+6, (2,2,3,3):(54,3,18,1)+12], "
     "result_views=[(2,2,3,3):(18,3,6,1)], scale=0.5}"},
    {"f64[2,3,2] f64[20] f64[2,4,3]",  // keys shared by the batch, every second row
     "{operand_views=[dense, (2,4,2):(0,4,1)+3], result_views=[(2,3,3):(3,6,1)], causal=true}"}};
inline constexpr Sample kAttentionGradientSamples[] = {
    {"f64[2,3,4] f64[2,5,4] f64[2,5,2] f64[2,3,2] f64[2,3,2] f64[2,3] f64[2,3] f64[2,3]", "{scale=0.5}", 0.5, 2},
    {"f64[2,4,2] f64[2,4,2] f64[2,4,3] f64[2,4,3] f64[2,4,3] f64[2,4] f64[2,4] f64[2,4]", "{causal=true}", 0.5, 2},
    {"f64[2,3,2] f64[2,4,2] f64[2,4,2] f64[2,3,2] f64[2,3,2] f64[2,3] f64[2,3] f64[2,3] f64[1,3,1]", "{scale=0.7}", 0.5, 2},
    {"f64[1,3,2] f64[1,4,2] f64[1,4,2] f64[1,3,2] f64[1,3,2] f64[1,3] f64[1,3] f64[1,3] bool[1,1,4]",
     "{causal=true, closed_rows_are_zero=true}", 0.5, 2},
    {"f64[2,3,2] f64[2,4,2] f64[2,4,2] f64[2,3,2] f64[2,3,2] f64[2,3] f64[2,3] f64[2,3] bool[1,3,4] u8[2,3,1]",
     "{scale=0.02, hidden=-3.0, dropout=0.5}", 0.5, 7},
    {"f64[6,18] f64[6,18] f64[6,18] f64[2,3,6] f64[2,3,6] f64[2,2,3] f64[2,2,3] f64[2,2,3]",
     "{operand_views=[(2,2,3,3):(54,3,18,1), (2,2,3,3):(54,3,18,1)+6, (2,2,3,3):(54,3,18,1)+12, (2,2,3,3):(18,3,6,1), "
     "(2,2,3,3):(18,3,6,1)], "
     "result_views=[(2,2,3,3):(54,3,18,1), (2,2,3,3):(54,3,18,1)+6, (2,2,3,3):(54,3,18,1)+12], results=[0,0,0], causal=true}",
     0.5, 2},
    {"f64[1,3,2] f64[1,4,2] f64[1,4,3] f64[1,3,3] f64[1,3,3] f64[1,3] f64[1,3] f64[1,3]",
     "{result_views=[dense, (1,4,2):(20,5,1), (1,4,3):(20,5,1)+2], results=[0,1,1]}", 0.5, 2}};

/// Queries of the result, each with all keys. Under the causal mask queries have numbers, but for one that sees all keys.
inline std::optional<BoxedNode> boxed_attention(const BoxContext& c) {
  const Shape& keys = c.operands[kKey].shape;
  const std::size_t row = c.box.size() - 2, column = row + 1;
  const bool drops = !c.box[row].is_whole(c.result.shape[row]),
             sees_all = c.box[row].size == 1 && c.box[row].start + 1 >= keys[row];
  if ((c.attributes.flag("causal") && drops && !sees_all) || c.attributes.real("dropout") != 0 ||
      !c.box[column].is_whole(c.result.shape[column]))
    return std::nullopt;
  BoxedNode boxed{std::vector<std::optional<Box>>(c.operands.size()), {}};
  Box q = c.box, k = c.box, v = c.box;
  q[column] = k[column] = {0, keys[column], 1};
  k[row] = v[row] = {0, keys[row], 1};
  boxed.operands[kQuery] = q, boxed.operands[kKey] = k, boxed.operands[kValue] = v;
  if (c.operands.size() > kAttentionMask && c.operands[kAttentionMask] != absent_type()) {
    const Shape& extents = c.operands[kAttentionMask].shape;
    Box mask = c.box;
    mask[column] = {0, extents[column], 1};
    for (std::size_t d = 0; d < column; ++d)
      if (extents[d] == 1) mask[d] = {0, 1, 1};
    boxed.operands[kAttentionMask] = mask;
  }
  if (drops) {
    boxed.attributes = c.attributes;
    boxed.attributes->erase("causal");
  }
  return boxed;
}

constexpr OpDef kAttention{
    .name = "attention",
    .summary =
        "softmax(scale * q k^T + mask) v, with dropout before v where `kept` has a bit for each score; and of each row of scores "
        "the maximum and the sum of exp(score - maximum)",
    .kind = Kind::composite,
    .operands = 5,
    .optional_operands = 2,
    .results = 3,
    .matrices = {.operands = 3, .results = 1},
    .attributes = kAttentionAttributes,
    .precision = Precision::low,
    .infer =
        [](const InferContext& c) {
          const Shape scores = attention_scores_shape(c);
          check_attention_mask(c, scores, kAttentionMask);
          check_attention_kept(c, scores, kAttentionKept);
          const TensorType &q = c.operand(kQuery), rows = attention_rows(q.dtype, scores);
          TensorType y = q;
          y.shape.back() = c.operand(kValue).shape.back();
          return std::vector{y, rows, rows};
        },
    .boxed = boxed_attention,
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          Var q = e.operand(kQuery), mask = e.has(kAttentionMask) ? e.operand(kAttentionMask) : Var();
          Var masked = attention_scores(b, q, e.operand(kKey), mask, e.attributes()).masked;
          const Integers last{masked.rank() - 1};
          Var top = b.max(masked, last), weights = attention_weights(b, masked, top), sum = b.sum(weights, last);
          Var p = AttentionWeights{weights, attention_divisor(b, sum, e.attributes())}.probabilities(b);
          p = attention_dropped(b, e.has(kAttentionKept) ? e.operand(kAttentionKept) : Var(), p, e.attributes());
          Var y = b.cast(b.matmul(p, b.cast(e.operand(kValue), p.dtype())), q.dtype());
          return std::vector{y.value, top.value, sum.value};
        },
    .gradient = attention_gradient_rule,
    .samples = kAttentionSamples,
};

constexpr OpDef kAttentionGradient{
    .name = "attention_gradient",
    .summary = "gradients of attention's q, k and v from dy, y, the rows' maxima and sums, and delta = sum(dy * y) of each row",
    .kind = Kind::composite,
    .operands = 10,
    .optional_operands = 2,
    .results = -1,
    .matrices = {.operands = 5, .results = 3},
    .attributes = kAttentionAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const Shape scores = attention_scores_shape(c);
          check_attention_mask(c, scores, kGradientMask);
          check_attention_kept(c, scores, kGradientKept);
          const TensorType &q = c.operand(kQuery), &dy = c.operand(kResultGradient), rows = attention_rows(q.dtype, scores);
          TensorType y = q;
          y.shape.back() = c.operand(kValue).shape.back();
          c.require(dy == y, "the result's gradient is ", shown(dy), ", wanted ", shown(y));
          const TensorType& forward = c.operand(kForwardResult);
          c.require(forward == y, "the result is ", shown(forward), ", wanted ", shown(y));
          for (std::size_t i : {kRowTop, kRowSum, kRowDelta})
            c.require(c.operand(i).shape == rows.shape && is_float(c.operand(i).dtype), "a statistic of rows is ",
                      shown(c.operand(i)), ", wanted ", shown(rows));
          return std::vector{q, c.operand(kKey), c.operand(kValue)};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          Var q = e.operand(kQuery);
          const auto row = [&](std::size_t i) { return b.cast(e.operand(i), compute_type(q.dtype())); };
          const AttentionGradientOperands o{q,
                                            e.operand(kKey),
                                            e.operand(kValue),
                                            e.operand(kResultGradient),
                                            row(kRowTop),
                                            row(kRowSum),
                                            row(kRowDelta),
                                            e.has(kGradientMask) ? e.operand(kGradientMask) : Var(),
                                            e.has(kGradientKept) ? e.operand(kGradientKept) : Var()};
          const AttentionGradients d = attention_gradients(b, o, e.attributes());
          return std::vector{d.q.value, d.k.value, d.v.value};
        },
    .no_gradient = "it is a gradient itself: what it expands to is differentiated",
    .samples = kAttentionGradientSamples,
};

inline constexpr const OpDef* kAttentionOps[] = {&kAttention, &kAttentionGradient};

}  // namespace gcomp::ir::ops
