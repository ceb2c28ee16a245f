#include "ir/builder.h"

#include <algorithm>
#include <numeric>

#include "ir/base/nearest.h"
#include "ir/matrices.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"

namespace gcomp::ir {
namespace {

std::vector<std::int64_t> iota_axes(std::int64_t count, std::int64_t first = 0) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(count));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

}  // namespace

Var OpDef::operator()(Var x) const { return x.builder->apply(*this, {x}); }
Var OpDef::operator()(Var x, Var y) const { return x.builder->apply(*this, {x, y}); }

void Builder::require_own(std::string_view where, Var value) const {
  if (!value || value.builder.run() == run_) return;
  const TensorType& type = value.type();  // which throws where its model is no more
  throw UserError(gcomp::concat(origin_.empty() ? "" : gcomp::concat("node '", origin_, "': "), where, "%", value.value->name, ", ",
                                to_string(type),
                                ", is a Var of another model, whose definition runs too; wanted one of this model"));
}

std::vector<Value*> Builder::values_of(const OpDef& op, const std::vector<Var>& operands) const {
  std::vector<Value*> values;
  values.reserve(operands.size());
  for (const Var& operand : operands) {
    if (operand && operand.builder.run() != run_) require_own(gcomp::concat("op '", op.name, "': "), operand);
    values.push_back(operand.value);
  }
  return values;
}

Var Builder::apply(const OpDef& op, std::vector<Var> operands, Attributes attributes, std::string name) {
  return wrap(graph_->append(op, values_of(op, operands), std::move(attributes), origin_, {std::move(name)})->result());
}

std::vector<Var> Builder::apply_many(const OpDef& op, std::vector<Var> operands, Attributes attributes) {
  std::vector<Var> results;
  for (Value* result : graph_->append(op, values_of(op, operands), std::move(attributes), origin_)->results)
    results.push_back(wrap(result));
  return results;
}

Var Builder::constant(Tensor tensor) {
  if (tensor.elements() == 1 && size_of(tensor.dtype()) <= 4) return full(tensor.type(), tensor.at(0));
  return apply(ops::kConstant, {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
}

Var Builder::full(TensorType type, double value) {
  return apply(ops::kFull, {}, {{"dtype", type.dtype}, {"shape", type.shape}, {"value", round_to(type.dtype, value)}});
}

Var Builder::broadcast(Var x, Shape shape, std::vector<std::int64_t> axes) {
  if (x.shape() == shape) return x;
  return apply(ops::kBroadcast, {x}, {{"shape", std::move(shape)}, {"axes", std::move(axes)}});
}

Var Builder::broadcast(Var x, Shape shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  check_user(x.rank() <= rank, "cannot broadcast ", to_string(x.type()), " to [", to_string(shape), "]");
  return broadcast(x, std::move(shape), iota_axes(x.rank(), rank - x.rank()));
}

Var Builder::reshape(Var x, Shape shape) {
  return x.shape() == shape ? x : apply(ops::kReshape, {x}, {{"shape", std::move(shape)}});
}

Var Builder::transpose(Var x, std::vector<std::int64_t> permutation) {
  if (permutation == iota_axes(x.rank())) return x;
  return apply(ops::kTranspose, {x}, {{"permutation", std::move(permutation)}});
}

Var Builder::transpose_last(Var x) {
  auto permutation = iota_axes(x.rank());
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return transpose(x, std::move(permutation));
}

Var Builder::slice(Var x, std::vector<std::int64_t> starts, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps) {
  const bool all = sizes == x.shape() && std::all_of(starts.begin(), starts.end(), [](auto s) { return s == 0; }) &&
                   std::all_of(steps.begin(), steps.end(), [](auto s) { return s == 1; });
  return all ? x
             : apply(ops::kSlice, {x}, {{"starts", std::move(starts)}, {"sizes", std::move(sizes)}, {"steps", std::move(steps)}});
}

Var Builder::slice_axis(Var x, std::int64_t axis, std::int64_t start, std::int64_t size) {
  std::vector<std::int64_t> starts(x.shape().size()), steps(x.shape().size(), 1);
  Shape sizes = x.shape();
  starts[static_cast<std::size_t>(axis)] = start;
  sizes[static_cast<std::size_t>(axis)] = size;
  return slice(x, starts, sizes, steps);
}

Var Builder::pad(Var x, std::vector<std::int64_t> low, std::vector<std::int64_t> high, double value) {
  auto zero = [](const auto& v) { return std::all_of(v.begin(), v.end(), [](auto p) { return p == 0; }); };
  if (zero(low) && zero(high)) return x;
  return apply(ops::kPad, {x}, {{"low", std::move(low)}, {"high", std::move(high)}, {"value", value}});
}

Var Builder::concat(std::vector<Var> parts, std::int64_t axis) {
  return parts.size() == 1 ? parts[0] : apply(ops::kConcat, std::move(parts), {{"axis", axis}});
}

Var Builder::reduce(const OpDef& op, Var x, std::vector<std::int64_t> axes, bool keep_dims) {
  std::sort(axes.begin(), axes.end());
  Shape kept = x.shape();
  for (std::int64_t a : axes) kept[static_cast<std::size_t>(a)] = 1;
  Var result = axes.empty() && op.reduction.of < Reduction::Of::first_maximum ? x : apply(op, {x}, {{"axes", std::move(axes)}});
  return keep_dims ? reshape(result, std::move(kept)) : result;
}

Var Builder::sum(Var x, std::vector<std::int64_t> axes, bool keep_dims) {
  return reduce(ops::kReduceSum, x, std::move(axes), keep_dims);
}
Var Builder::max(Var x, std::vector<std::int64_t> axes, bool keep_dims) {
  return reduce(ops::kReduceMax, x, std::move(axes), keep_dims);
}

Var Builder::mean(Var x, std::vector<std::int64_t> axes, bool keep_dims) {
  std::int64_t count = 1;
  for (std::int64_t a : axes) count *= x.dim(a);
  return sum(x, std::move(axes), keep_dims) / static_cast<double>(count);
}

Var Builder::unreduce(Var x, const Shape& shape, const std::vector<std::int64_t>& axes) {
  std::vector<std::int64_t> mapped;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(shape.size()); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) mapped.push_back(d);
  return broadcast(x, shape, std::move(mapped));
}

Var Builder::matmul(Var a, Var b, bool transpose_a, bool transpose_b) {
  return apply(ops::kMatmul, {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}
Var Builder::gather(Var data, Var indices, std::int64_t axis, std::int64_t padding_index) {
  return apply(ops::kGather, {data, indices}, {{"axis", axis}, {"padding_index", padding_index}});
}
Var Builder::iota(TensorType type, std::int64_t axis) {
  return apply(ops::kIota, {}, {{"dtype", type.dtype}, {"shape", std::move(type.shape)}, {"axis", axis}});
}
Var Builder::cast(Var x, DType to) { return x.dtype() == to ? x : apply(ops::kCast, {x}, {{"to", to}}); }
Var Builder::select(Var condition, Var a, Var b) { return apply(ops::kSelect, {condition, a, b}); }
void Builder::update(Value* state, Var value) {
  graph_->append(ops::kUpdate, values_of(ops::kUpdate, {wrap(state), value}), {}, origin_);
}

void GradientContext::set_attributes(Attributes attributes) { attributes_ = without_views(std::move(attributes)); }

Var GradientContext::operand(std::size_t i) {
  return dense(builder_, builder_.wrap(node_.operands[i]), view_at(node_.attributes.views(kOperandViews), i));
}
Var GradientContext::result(std::size_t i) {
  return dense(builder_, builder_.wrap(node_.results[i]), view_at(node_.attributes.views(kResultViews), i));
}

Var GradientContext::dy(std::size_t i) {
  if (!result_gradients_[i]) result_gradients_[i] = builder_.full(node_.results[i]->type, 0);
  return dense(builder_, result_gradients_[i], view_at(node_.attributes.views(kResultViews), i));
}

void GradientContext::add(std::size_t i, Var gradient) {
  gradient = scattered(builder_, gradient, view_at(node_.attributes.views(kOperandViews), i), node_.operands[i]->type);
  check_internal(gradient.type() == node_.operands[i]->type, "gradient of ", node_.op->name, " for operand ", i, " is ",
                 ops::shown(gradient.type()), ", the operand ", ops::shown(node_.operands[i]->type));
  gradients_[i] = gradients_[i] ? gradients_[i] + gradient : gradient;
}

ExpandContext::ExpandContext(Builder& builder, const Node& node, Attributes attributes)
    : builder_(builder), node_(node), attributes_(without_views(std::move(attributes))) {}

Var ExpandContext::operand(std::size_t i) {
  return dense(builder_, builder_.wrap(node_.operands[i]), view_at(node_.attributes.views(kOperandViews), i));
}

}  // namespace gcomp::ir
