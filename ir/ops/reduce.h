// Reductions: combine over `axes`, which leave the shape. Sums of f16 and bf16 accumulate in f32.
#pragma once

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kReduceAttributes[] = {AttributeSpec::of("axes", AttributeType::integers)};
inline constexpr Sample kReduceSamples[] = {
    {"f64[2,3,4]", "{axes=[1]}"}, {"f64[2,3,4]", "{axes=[0,2]}"}, {"f64[5]", "{axes=[0]}"}, {"f64[2,3]", "{axes=[]}"}};

/// dy spread evenly over the elements that equal the reduced value.
inline void spread_over_ties(GradientContext& g) {
  const auto& axes = g.attributes().integers("axes");
  Var x = g.operand(0);
  Builder& b = g.builder();
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
    .summary = "maximum over axes; ties share the gradient evenly",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kReduceAttributes,
    .precision = Precision::promoted,
    .reduction = {Reduction::Of::maximum},
    .gradient = spread_over_ties,
    .samples = kReduceSamples,
};
constexpr OpDef kReduceMin{
    .name = "reduce_min",
    .summary = "minimum over axes; ties share the gradient evenly",
    .kind = Kind::reduce,
    .operands = 1,
    .attributes = kReduceAttributes,
    .precision = Precision::promoted,
    .reduction = {Reduction::Of::minimum},
    .gradient = spread_over_ties,
    .samples = kReduceSamples,
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
