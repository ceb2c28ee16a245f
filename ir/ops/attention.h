// Attention as one op: softmax(q k^T) v without the scores ever being a value. Targets with a kernel for it take the node as it is
// (TargetInfo::legal_composite); everywhere else it is its expansion. Its matrices may lie as views in larger values
// (ir/attention_views.h); what is computed knows nothing of it.
#pragma once

#include <array>
#include <limits>

#include "ir/attention_views.h"
#include "ir/ops/pointwise.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"

namespace gcomp::ir::ops {

/// Of both ops, then those of one.
template <std::size_t kMore>
consteval std::array<AttributeSpec, 8 + kMore> attention_attributes(const std::array<std::string_view, kMore>& more) {
  std::array<AttributeSpec, 8 + kMore> all = {
      AttributeSpec::optional("scale", AttributeType::real, 1),
      AttributeSpec::optional("causal", AttributeType::flag),
      AttributeSpec::optional("hidden", AttributeType::real, -std::numeric_limits<double>::infinity()),
      AttributeSpec::optional("closed_rows_are_zero", AttributeType::flag),
      AttributeSpec::optional("sizes", AttributeType::integers),
      AttributeSpec::optional("q_view", AttributeType::integers),
      AttributeSpec::optional("k_view", AttributeType::integers),
      AttributeSpec::optional("v_view", AttributeType::integers)};
  for (std::size_t i = 0; i < kMore; ++i) all[8 + i] = AttributeSpec::optional(more[i], AttributeType::integers);
  return all;
}
inline constexpr auto kAttentionAttributes = attention_attributes(std::array<std::string_view, 1>{"y_view"});
inline constexpr auto kAttentionGradientAttributes =
    attention_attributes(std::array<std::string_view, 5>{"dy_view", "dq_view", "dk_view", "dv_view", "results"});

/// Positions of the operands of `attention` and of its gradient; the mask may be absent.
enum AttentionOperand : std::size_t { kQuery, kKey, kValue, kAttentionMask };
enum AttentionGradientOperand : std::size_t { kResultGradient = 3, kRowTop, kRowSum, kRowDelta, kGradientMask };

inline Integers all_axes(std::int64_t rank) {
  Integers axes;
  for (std::int64_t i = 0; i < rank; ++i) axes.push_back(i);
  return axes;
}

/// [batch..., S] in the type that rows are computed in.
inline TensorType attention_rows(DType dtype, const Shape& scores) {
  return {compute_type(dtype), Shape(scores.begin(), scores.end() - 1)};
}

/// Checks the shapes of q, k and v, or the `sizes` that stand in for them.
inline void check_attention_sizes(const InferContext& c) {
  const TensorType &q = c.operand(kQuery), &k = c.operand(kKey), &v = c.operand(kValue);
  const Integers& sizes = c.attributes.integers("sizes");
  if (!sizes.empty()) {
    c.require(sizes.size() >= 4 && *std::min_element(sizes.begin(), sizes.end()) >= 1, "sizes are [", shown(sizes),
              "], wanted [batch..., s, t, d, e] of at least 1 each");
    c.require(is_float(q.dtype) && k.dtype == q.dtype && v.dtype == q.dtype, "query is ", shown(q), ", key ", shown(k), ", value ",
              shown(v), "; wanted one floating point type");
    return;
  }
  for (std::string_view name : {"q_view", "k_view", "v_view"})
    c.require(c.attributes.integers(name).empty(), name, " needs sizes = [batch..., s, t, d, e]");
  const auto batch = [](const TensorType& x) { return Shape(x.shape.begin(), x.shape.end() - 2); };
  c.require(q.rank() >= 2 && is_float(q.dtype) && k.rank() == q.rank() && v.rank() == q.rank() && k.dtype == q.dtype &&
                v.dtype == q.dtype && batch(k) == batch(q) && batch(v) == batch(q) && k.shape.back() == q.shape.back() &&
                k.shape[k.shape.size() - 2] == v.shape[v.shape.size() - 2],
            "query is ", shown(q), ", key ", shown(k), ", value ", shown(v),
            "; wanted [batch..., s, d], [batch..., t, d] and [batch..., t, e]");
}

/// Checks that a view lies inside `elements` elements.
inline void check_view(const InferContext& c, const AttentionMatrix& m, std::int64_t elements) {
  const StridedView& view = *m.view;
  c.require(view.strides.size() == m.shape.size(), m.view_name, " has ", view.strides.size() + 1, " numbers, wanted an offset and ",
            m.shape.size(), " strides");
  std::int64_t last = view.offset;
  bool inside = last >= 0 && last < elements;
  for (std::size_t d = 0; inside && d < m.shape.size(); ++d) {
    const std::int64_t steps = m.shape[d] - 1;
    inside = view.strides[d] >= 0 && (steps == 0 || view.strides[d] <= (elements - 1 - last) / steps);
    if (inside) last += steps * view.strides[d];
  }
  c.require(inside, m.view_name, " [", shown(view.as_attribute()), "] of [", shown(m.shape), "] leaves ", elements, " elements");
  c.require(m.shape.back() == 1 || view.strides.back() == 1, m.view_name, " has stride ", view.strides.back(),
            " within a row, wanted 1");
}

inline void check_attention_operands(const InferContext& c, const AttentionMatrices& matrices) {
  for (const AttentionMatrix& m : matrices.operands) {
    const TensorType& x = c.operand(m.value);
    if (m.view) check_view(c, m, x.elements());
    else
      c.require(x.shape == m.shape, "operand ", m.value, " is ", shown(x), " without ", m.view_name, ", wanted [", shown(m.shape),
                "]");
  }
}

/// Of the matrices that one result holds: its type. Each element must be written once.
inline TensorType attention_result(const InferContext& c, const std::vector<AttentionMatrix>& parts) {
  const DType dtype = c.operand(kQuery).dtype;
  if (parts.size() == 1 && !parts[0].view) return {dtype, parts[0].shape};
  std::int64_t elements = 0;
  for (const AttentionMatrix& m : parts) elements += element_count(m.shape);
  for (const AttentionMatrix& m : parts) {
    c.require(m.view.has_value(), m.view_name, " is missing: result ", m.value, " holds more than one gradient");
    check_view(c, m, elements);
  }
  c.require(fill_once(parts, elements), parts[0].view_name, parts.size() > 1 ? " and the others of its result do" : " does",
            " not write each of ", elements, " elements once");
  return {dtype, {elements}};
}

inline std::vector<TensorType> attention_results(const InferContext& c, const AttentionMatrices& matrices) {
  std::vector<std::vector<AttentionMatrix>> values;
  for (const AttentionMatrix& m : matrices.results) {
    values.resize(std::max(values.size(), m.value + 1));
    values[m.value].push_back(m);
  }
  std::vector<TensorType> types;
  for (const auto& parts : values) types.push_back(attention_result(c, parts));
  return types;
}

inline void check_attention_mask(const InferContext& c, const Shape& scores, std::size_t mask) {
  if (mask >= c.operands.size()) return;
  const TensorType& m = c.operand(mask);
  bool fits = m.shape.size() == scores.size() && (m.dtype == DType::boolean || is_float(m.dtype));
  for (std::size_t d = 0; fits && d < scores.size(); ++d) fits = m.shape[d] == 1 || m.shape[d] == scores[d];
  c.require(fits, "mask is ", shown(m), ", wanted bool or floating point, each dimension 1 or that of the scores [", shown(scores),
            "]");
}

/// The matrix as a value of its own.
inline Var dense(Builder& b, Var value, const AttentionMatrix& m) {
  return m.view ? b.gather(b.reshape(value, {value.type().elements()}), b.constant(m.positions()), 0) : value;
}
/// The transpose of dense(): zeros where the view does not reach.
inline Var scattered(Builder& b, Var matrix, const AttentionMatrix& m, const TensorType& value) {
  if (!m.view) return matrix;
  Var flat = b.apply(kScatterAdd, {b.constant(m.positions()), matrix}, {{"axis", std::int64_t{0}}, {"size", value.elements()}});
  return b.reshape(flat, value.shape);
}
/// The results that hold matrices which are dense values.
inline std::vector<Value*> stored(Builder& b, const std::vector<Var>& matrices, const std::vector<AttentionMatrix>& views) {
  std::vector<Value*> values;
  for (std::size_t value = 0; value <= views.back().value; ++value) {
    std::vector<Var> parts;
    std::vector<std::int64_t> positions;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (views[i].value != value) continue;
      parts.push_back(views[i].view ? b.reshape(matrices[i], {matrices[i].type().elements()}) : matrices[i]);
      if (!views[i].view) continue;
      const std::vector<std::int64_t> more = views[i].positions().to_integers();
      positions.insert(positions.end(), more.begin(), more.end());
    }
    if (positions.empty()) {
      values.push_back(parts[0].value);
      continue;
    }
    std::vector<std::int64_t> sources(positions.size());
    for (std::size_t i = 0; i < positions.size(); ++i) sources[at(positions[i])] = static_cast<std::int64_t>(i);
    Var together = parts.size() == 1 ? parts[0] : b.concat(parts, 0);
    values.push_back(b.gather(together, b.constant(Tensor::of_integers(sources)), 0).value);
  }
  return values;
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
  Var q, k, v, dy, top, sum, delta, mask;
};
inline AttentionGradients attention_gradients(Builder& b, const AttentionGradientOperands& o, const Attributes& a, Var more = {}) {
  const DType compute = compute_type(o.q.dtype());
  const AttentionScores s = attention_scores(b, o.q, o.k, o.mask, a);
  const Integers last{s.masked.rank() - 1};
  const AttentionWeights w{attention_weights(b, s.masked, o.top), attention_divisor(b, o.sum, a)};
  Var p = w.probabilities(b), dy = b.cast(o.dy, compute), dp = b.matmul(dy, b.cast(o.v, compute), false, true);
  Var masked = p * (dp - b.unreduce(o.delta, dp.shape(), last));
  if (more) masked = masked + more;
  Var scaled = (s.open ? choose(s.open, masked, 0) : masked) * a.real("scale");
  return {b.cast(b.matmul(scaled, b.cast(o.k, compute)), o.q.dtype()),
          b.cast(b.matmul(scaled, b.cast(o.q, compute), true), o.k.dtype()), b.cast(b.matmul(p, dy, true), o.v.dtype()), masked};
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

inline Attributes without_views(Attributes attributes) {
  for (std::string_view name : {"sizes", "q_view", "k_view", "v_view", "y_view"}) attributes.erase(name);
  return attributes;
}

inline void attention_gradient_rule(GradientContext& g) {
  Builder& b = g.builder();
  const AttentionMatrices matrices = attention_matrices(types_of(g.node().operands), g.attributes());
  const Attributes attributes = without_views(g.attributes());
  const auto operand = [&](std::size_t i) { return dense(b, g.operand(i), matrices.operands[i]); };
  const auto add = [&](std::size_t i, Var d) { g.add(i, scattered(b, d, matrices.operands[i], g.operand(i).type())); };
  const DType compute = compute_type(g.operand(kQuery).dtype());
  const bool masked = g.node().operands.size() > kAttentionMask;
  Var mask = masked ? g.operand(kAttentionMask) : Var();
  Var y = dense(b, g.result(), matrices.results[0]), dy = dense(b, g.dy(), matrices.results[0]);
  Var product = b.cast(dy, compute) * b.cast(y, compute);
  const AttentionGradientOperands o{
      operand(kQuery), operand(kKey), operand(kValue), dy, g.result(1), g.result(2), b.sum(product, {product.rank() - 1}), mask};
  if (g.has_dy(1) || g.has_dy(2) || (masked && g.wants(kAttentionMask))) {
    Var more =
        g.has_dy(1) || g.has_dy(2) ? statistics_gradient(b, o.q, o.k, mask, o.sum, o.top, g.dy(1), g.dy(2), attributes) : Var();
    const AttentionGradients d = attention_gradients(b, o, attributes, more);
    add(kQuery, d.q);
    add(kKey, d.k);
    add(kValue, d.v);
    if (!masked || !g.wants(kAttentionMask)) return;
    Integers repeated;
    Var dmask = attributes.flag("causal") ? attention_scores(b, o.q, o.k, mask, attributes).open : Var();
    dmask = dmask ? choose(dmask, d.masked, 0) : d.masked;
    for (std::int64_t i = 0; i < mask.rank(); ++i)
      if (mask.dim(i) != dmask.dim(i)) repeated.push_back(i);
    g.add(kAttentionMask, b.cast(b.sum(dmask, repeated, true), mask.dtype()));
    return;
  }
  std::vector<Var> operands{o.q, o.k, o.v, o.dy, o.top, o.sum, o.delta};
  if (masked) operands.push_back(mask);
  const std::vector<Var> d = b.apply_many(kAttentionGradient, operands, attributes);
  for (std::size_t i = 0; i < d.size(); ++i) add(i, d[i]);
}

inline constexpr Sample kAttentionSamples[] = {
    {"f64[2,3,4] f64[2,5,4] f64[2,5,2]", "{scale=0.5}"},
    {"f64[2,4,2] f64[2,4,2] f64[2,4,3]", "{scale=0.7, causal=true}"},
    {"f64[2,2,3,2] f64[2,2,4,2] f64[2,2,4,3] f64[2,1,1,4]", "{scale=0.5}"},
    {"f64[1,3,2] f64[1,5,2] f64[1,5,2] f64[1,3,5]", "{causal=true}"},
    {"f64[2,3,2] f64[2,4,2] f64[2,4,2] bool[1,3,4]", "{hidden=-3.0}"},
    {"f64[2,5,2] f64[2,5,2] f64[2,5,2] bool[2,5,5]", "{closed_rows_are_zero=true, causal=true}"},
    {"f64[6,18] f64[6,18] f64[6,18]",  // [batch, row, which, head, column]
     "{sizes=[2,2,3,3,3,3], q_view=[0,54,3,18,1], k_view=[6,54,3,18,1], v_view=[12,54,3,18,1], y_view=[0,18,3,6,1], scale=0.5}"},
    {"f64[2,3,2] f64[20] f64[2,4,3]",  // keys shared by the batch, every second row
     "{sizes=[2,3,4,2,3], k_view=[3,0,4,1], y_view=[0,3,6,1], causal=true}"}};
inline constexpr Sample kAttentionGradientSamples[] = {
    {"f64[2,3,4] f64[2,5,4] f64[2,5,2] f64[2,3,2] f64[2,3] f64[2,3] f64[2,3]", "{scale=0.5}", 0.5, 2},
    {"f64[2,4,2] f64[2,4,2] f64[2,4,3] f64[2,4,3] f64[2,4] f64[2,4] f64[2,4]", "{causal=true}", 0.5, 2},
    {"f64[2,3,2] f64[2,4,2] f64[2,4,2] f64[2,3,2] f64[2,3] f64[2,3] f64[2,3] f64[1,3,1]", "{scale=0.7}", 0.5, 2},
    {"f64[1,3,2] f64[1,4,2] f64[1,4,2] f64[1,3,2] f64[1,3] f64[1,3] f64[1,3] bool[1,1,4]",
     "{causal=true, closed_rows_are_zero=true}", 0.5, 2},
    {"f64[6,18] f64[6,18] f64[6,18] f64[2,3,6] f64[2,2,3] f64[2,2,3] f64[2,2,3]",
     "{sizes=[2,2,3,3,3,3], q_view=[0,54,3,18,1], k_view=[6,54,3,18,1], v_view=[12,54,3,18,1], dy_view=[0,18,3,6,1], "
     "dq_view=[0,54,3,18,1], dk_view=[6,54,3,18,1], dv_view=[12,54,3,18,1], results=[0,0,0], causal=true}",
     0.5, 2},
    {"f64[1,3,2] f64[1,4,2] f64[1,4,3] f64[1,3,3] f64[1,3] f64[1,3] f64[1,3]",
     "{dk_view=[0,20,5,1], dv_view=[2,20,5,1], results=[0,1,1]}", 0.5, 2}};

constexpr OpDef kAttention{
    .name = "attention",
    .summary = "softmax(scale * q k^T + mask) v; and of each row of scores the maximum and the sum of exp(score - maximum)",
    .kind = Kind::composite,
    .operands = 4,
    .optional_operands = 1,
    .results = 3,
    .attributes = kAttentionAttributes,
    .precision = Precision::low,
    .infer =
        [](const InferContext& c) {
          check_attention_sizes(c);
          const AttentionMatrices matrices = attention_matrices(c.operands, c.attributes);
          check_attention_operands(c, matrices);
          check_attention_mask(c, matrices.scores, kAttentionMask);
          const TensorType rows = attention_rows(c.operand(kQuery).dtype, matrices.scores);
          return std::vector{attention_results(c, matrices)[0], rows, rows};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::vector<TensorType> types{e.operand(kQuery).type(), e.operand(kKey).type(), e.operand(kValue).type()};
          const AttentionMatrices matrices = attention_matrices(types, e.attributes());
          const auto operand = [&](std::size_t i) { return dense(b, e.operand(i), matrices.operands[i]); };
          Var q = operand(kQuery), mask = e.has(kAttentionMask) ? e.operand(kAttentionMask) : Var();
          Var masked = attention_scores(b, q, operand(kKey), mask, e.attributes()).masked;
          const Integers last{masked.rank() - 1};
          Var top = b.max(masked, last), weights = attention_weights(b, masked, top), sum = b.sum(weights, last);
          Var p = AttentionWeights{weights, attention_divisor(b, sum, e.attributes())}.probabilities(b);
          Var y = b.cast(b.matmul(p, b.cast(operand(kValue), p.dtype())), q.dtype());
          return std::vector{stored(b, {y}, matrices.results)[0], top.value, sum.value};
        },
    .gradient = attention_gradient_rule,
    .samples = kAttentionSamples,
};

constexpr OpDef kAttentionGradient{
    .name = "attention_gradient",
    .summary = "gradients of attention's q, k and v from dy, the rows' maxima and sums, and delta = sum(dy * y) of each row",
    .kind = Kind::composite,
    .operands = 8,
    .optional_operands = 1,
    .results = -1,
    .attributes = kAttentionGradientAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          check_attention_sizes(c);
          const Integers& results = c.attributes.integers("results");
          const bool known = results.empty() || results == Integers{0, 1, 2} || results == Integers{0, 1, 1} ||
                             results == Integers{0, 0, 1} || results == Integers{0, 1, 0} || results == Integers{0, 0, 0};
          c.require(known, "results are [", shown(results), "], wanted those of dq, dk and dv, numbered as they first occur");
          const AttentionMatrices matrices = attention_gradient_matrices(c.operands, c.attributes);
          check_attention_operands(c, matrices);
          check_attention_mask(c, matrices.scores, kGradientMask);
          c.require(c.operand(kResultGradient).dtype == c.operand(kQuery).dtype, "the result's gradient is ",
                    shown(c.operand(kResultGradient)), ", wanted the type of ", shown(c.operand(kQuery)));
          const TensorType rows = attention_rows(c.operand(kQuery).dtype, matrices.scores);
          for (std::size_t i : {kRowTop, kRowSum, kRowDelta})
            c.require(c.operand(i).shape == rows.shape && is_float(c.operand(i).dtype), "a statistic of rows is ",
                      shown(c.operand(i)), ", wanted ", shown(rows));
          return attention_results(c, matrices);
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::vector<TensorType> types{e.operand(kQuery).type(), e.operand(kKey).type(), e.operand(kValue).type()};
          const AttentionMatrices matrices = attention_gradient_matrices(types, e.attributes());
          const auto at = [&](std::size_t i) { return dense(b, e.operand(i), matrices.operands[i]); };
          const auto row = [&](std::size_t i) { return b.cast(e.operand(i), compute_type(e.operand(kQuery).dtype())); };
          const AttentionGradientOperands o{
              at(kQuery),   at(kKey),     at(kValue),     at(kResultGradient),
              row(kRowTop), row(kRowSum), row(kRowDelta), e.has(kGradientMask) ? e.operand(kGradientMask) : Var()};
          const AttentionGradients d = attention_gradients(b, o, e.attributes());
          return stored(b, {d.q, d.k, d.v}, matrices.results);
        },
    .no_gradient = "it is a gradient itself: what it expands to is differentiated",
    .samples = kAttentionGradientSamples,
};

inline constexpr const OpDef* kAttentionOps[] = {&kAttention, &kAttentionGradient};

}  // namespace gcomp::ir::ops
