#include "frontend/formulas/norms.h"

#include <algorithm>

#include "ir/base/shape.h"
#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {

namespace ops = ir::ops;

Var per_channel(Var v, const Shape& shape) { return v.builder->broadcast(v, shape, {1}); }

Var normalized(Var x, std::int64_t axis, double epsilon) {
  ir::Builder& b = *x.builder;
  const TensorType row{x.dtype(), Shape(x.shape().begin() + axis, x.shape().end())};
  return b.apply(ops::kLayerNorm, {x, b.full(row, 1), b.full(row, 0)}, {{"axis", axis}, {"epsilon", epsilon}});
}

Var rms_normalized(Var x, std::int64_t axis, double epsilon) {
  ir::Builder& b = *x.builder;
  std::vector<std::int64_t> axes;
  for (std::int64_t i = axis; i < x.rank(); ++i) axes.push_back(i);
  Var factor = ops::kRsqrt(b.mean(x * x, axes, true) + epsilon);
  return x * b.broadcast(factor, x.shape());
}

Var group_normalized(Var x, std::int64_t groups, double epsilon) {
  const std::int64_t rest = element_count(x.shape()) / std::max<std::int64_t>(1, x.dim(0) * groups);
  return normalized(x.builder->reshape(x, {x.dim(0), groups, rest}), 2, epsilon);
}

}  // namespace gcomp::frontend::formulas
