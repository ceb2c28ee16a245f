#include "ir/nest/loops.h"

#include "ir/ops/table.h"

namespace gcomp::ir {

std::vector<Index> axes_of_shape(const Shape& shape, int first) {
  std::vector<Index> indices;
  for (std::size_t i = 0; i < shape.size(); ++i) indices.push_back(Index::axis(first + static_cast<int>(i), shape[i]));
  return indices;
}

std::vector<int> axis_numbers(std::size_t count, int first) {
  std::vector<int> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = first + static_cast<int>(i);
  return numbers;
}

LoopNest map_nest(const TensorType& type, const std::function<TermPtr(const std::vector<Index>&)>& value) {
  LoopNest nest;
  nest.extents = type.shape;
  const std::vector<Index> indices = axes_of_shape(type.shape);
  Statement statement;
  statement.dtype = type.dtype;
  statement.axes = axis_numbers(type.shape.size());
  statement.value = value(indices);
  nest.statements.push_back(std::move(statement));
  nest.outputs.push_back({0, indices, false});
  return nest;
}

LoopNest reduce_nest(const TensorType& result, const Shape& over, const OpDef& combine,
                     const std::function<TermPtr(const std::vector<Index>&, const std::vector<Index>&)>& value) {
  LoopNest nest;
  nest.extents = result.shape;
  nest.extents.insert(nest.extents.end(), over.begin(), over.end());
  const int kept = static_cast<int>(result.shape.size());
  const std::vector<Index> indices = axes_of_shape(result.shape), over_indices = axes_of_shape(over, kept);
  Statement statement;
  statement.kind = Statement::Kind::reduce;
  statement.dtype = result.dtype;
  statement.axes = axis_numbers(result.shape.size());
  statement.combine = &combine;
  statement.over = axis_numbers(over.size(), kept);
  statement.value = value(indices, over_indices);
  nest.statements.push_back(std::move(statement));
  nest.outputs.push_back({0, indices, false});
  return nest;
}

TermPtr combined(const OpDef& reduction, const TermPtr& a, const TermPtr& b) {
  const bool truth = a->dtype == DType::boolean;
  switch (reduction.reduction.of) {
    case Reduction::Of::sum: return call(a->dtype, truth ? ops::kOr : ops::kAdd, {a, b});
    case Reduction::Of::product: return call(a->dtype, truth ? ops::kAnd : ops::kMul, {a, b});
    case Reduction::Of::maximum: return call(a->dtype, ops::kMaximum, {a, b});
    case Reduction::Of::minimum: return call(a->dtype, ops::kMinimum, {a, b});
    case Reduction::Of::none:
    case Reduction::Of::first_maximum:
    case Reduction::Of::first_minimum: break;
  }
  throw InternalError(concat("reduction ", reduction.name, " does not combine values"));
}

}  // namespace gcomp::ir
