// Reductions: combine over `axes`, which leave the shape. Sums of f16 and bf16 accumulate in f32.
#pragma once

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kReduceAttributes[] = {AttributeSpec::of("axes", AttributeType::integers)};
inline constexpr Sample kReduceSamples[] = {
    {"f64[2,3,4]", "{axes=[1]}"}, {"f64[2,3,4]", "{axes=[0,2]}"}, {"f64[5]", "{axes=[0]}"}, {"f64[2,3]", "{axes=[]}"}};
inline constexpr AttributeSpec kExtremumAttributes[] = {AttributeSpec::of("axes", AttributeType::integers),
                                                        AttributeSpec::optional("first", AttributeType::flag)};
inline constexpr Sample kExtremumSamples[] = {{"f64[2,3,4]", "{axes=[1]}"},
                                              {"f64[2,3,4]", "{axes=[0,2]}"},
                                              {"f64[5]", "{axes=[0]}"},
                                              {"f64[2,3]", "{axes=[]}"},
                                              {"f64[2,3,4]", "{axes=[0,2], first=true}"},
                                              {"f64[3,4]", "{axes=[1], first=true}"}};

/// Of each element, its row-major position within the reduced axes, as i64.
inline Var position_within(Builder& b, const Shape& shape, const std::vector<std::int64_t>& axes) {
  Var position = b.full({DType::i64, shape}, 0);
  std::int64_t stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    position = position + b.iota({DType::i64, shape}, *axis) * static_cast<double>(stride);
    stride *= shape[static_cast<std::size_t>(*axis)];
  }
  return position;
}

/// dy spread evenly over the elements that equal the reduced value, or all of it where `place_of` finds the first of them.
template <const OpDef& place_of>
void reach_extremum(GradientContext& g) {
  const auto& axes = g.attributes().integers("axes");
  Var x = g.operand(0);
  Builder& b = g.builder();
  if (g.attributes().flag("first") && !axes.empty()) {
    Var place = b.unreduce(b.reduce(place_of, x, axes), x.shape(), axes);
    g.add(0, choose(position_within(b, x.shape(), axes) == place, b.unreduce(g.dy(), x.shape(), axes), 0));
    return;
  }
  Var hit = b.select(x == b.unreduce(g.result(), x.shape(), axes), b.like(x, 1), b.like(x, 0));
  g.add(0, hit * b.unreduce(g.dy() / b.sum(hit, axes), x.shape(), axes));
}

constexpr OpDef kReduceSum{
    .name = "reduce_sum",
    .summary = "sum over axes; 0 of nothing",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kReduceAttributes,
    .precision = Precision::wide,
    .reduction = {Reduction::Of::sum},
    .gradient =
        [](GradientContext& g) { g.add(0, g.builder().unreduce(g.dy(), g.operand(0).shape(), g.attributes().integers("axes"))); },
    .samples = kReduceSamples,
};
constexpr OpDef kReduceMax{
    .name = "reduce_max",
    .summary = "maximum over axes; ties share the gradient evenly, or the first has it",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kExtremumAttributes,
    .precision = Precision::promoted,
    .reduction = {Reduction::Of::maximum},
    .gradient = reach_extremum<kArgMax>,
    .samples = kExtremumSamples,
};
constexpr OpDef kReduceMin{
    .name = "reduce_min",
    .summary = "minimum over axes; ties share the gradient evenly, or the first has it",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kExtremumAttributes,
    .precision = Precision::promoted,
    .reduction = {Reduction::Of::minimum},
    .gradient = reach_extremum<kArgMin>,
    .samples = kExtremumSamples,
};

/// Products of the others, by an exclusive running product from each side, so that zeros are exact.
inline void product_gradient(GradientContext& g) {
  const auto& axes = g.attributes().integers("axes");
  Builder& b = g.builder();
  Var x = g.operand(0);
  std::vector<std::int64_t> permutation, kept;
  Shape flat;
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      permutation.push_back(i);
      flat.push_back(x.dim(i));
    } else count *= x.dim(i);
  }
  for (std::int64_t a : axes) permutation.push_back(a);
  Var moved = b.transpose(x, permutation);
  flat.push_back(count);
  Var rows = b.reshape(moved, flat);
  const std::int64_t last = static_cast<std::int64_t>(flat.size()) - 1;
  Var before = b.apply(kCumulativeProduct, {rows}, {{"axis", last}, {"exclusive", true}});
  Var after = b.apply(kCumulativeProduct, {rows}, {{"axis", last}, {"exclusive", true}, {"reverse", true}});
  std::vector<std::int64_t> inverse(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i)
    inverse[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  Var others = b.transpose(b.reshape(before * after, moved.shape()), inverse);
  g.add(0, others * b.unreduce(g.dy(), x.shape(), axes));
}

constexpr OpDef kReduceProduct{
    .name = "reduce_product",
    .summary = "product over axes; 1 of nothing; the gradient is exact at zeros",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kReduceAttributes,
    .precision = Precision::wide,
    .reduction = {Reduction::Of::product},
    .gradient = product_gradient,
    .samples = kReduceSamples,
};
constexpr OpDef kArgMax{
    .name = "arg_max",
    .summary = "row-major position, within the reduced axes, of the first maximum, as i64; NaN wins",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kReduceAttributes,
    .precision = Precision::promoted,
    .reduction = {Reduction::Of::first_maximum},
    .no_gradient = "its result is a position",
    .samples = kReduceSamples,
};
constexpr OpDef kArgMin{
    .name = "arg_min",
    .summary = "row-major position, within the reduced axes, of the first minimum, as i64; NaN wins",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kReduceAttributes,
    .precision = Precision::promoted,
    .reduction = {Reduction::Of::first_minimum},
    .no_gradient = "its result is a position",
    .samples = kReduceSamples,
};

inline constexpr const OpDef* kReduceOps[] = {&kReduceSum, &kReduceMax, &kReduceMin, &kReduceProduct, &kArgMax, &kArgMin};

}  // namespace gcomp::ir::ops
