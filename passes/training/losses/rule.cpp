#include "passes/training/losses/rule.h"

namespace gcomp::passes {

using namespace ir;

void same_types(LossTypes& types) {
  std::size_t first = 0;
  while (first < types.count() && !types.known(first)) ++first;
  types.require(first < types.count(), "none of its arguments is an output of the model");
  const TensorType type = *types.known(first);
  types.require(is_float(type.dtype), "an argument is ", to_string(type), ", wanted floats");
  for (std::size_t i = 0; i < types.count(); ++i) types.want(i, type);
}

Shape without_axis(Shape shape, std::int64_t axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

std::vector<std::int64_t> all_but(std::int64_t rank, std::int64_t axis) {
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < rank; ++i)
    if (i != axis) axes.push_back(i);
  return axes;
}

std::int64_t class_axis(const LossTypes& types) {
  const TensorType& x = *types.known(0);
  const std::int64_t last = x.rank() - 1;
  types.require(x.rank() >= 1 && is_float(x.dtype), "the output is ", to_string(x), ", wanted a class axis");
  if (types.options().has("axis")) {
    const std::int64_t given = types.options().integer("axis"), axis = given < 0 ? given + x.rank() : given;
    types.require(axis >= 0 && axis <= last, "axis=", given, " is out of range for the output ", to_string(x));
    return axis;
  }
  const std::optional<TensorType> data = types.found(1);
  const TensorType* found = types.known(1) ? types.known(1) : data ? &*data : nullptr;
  if (last < 2 || !found) return last;
  const bool fits_last = found->shape == without_axis(x.shape, last), fits_first = found->shape == without_axis(x.shape, 1);
  constexpr std::string_view kAsk = "; say which axis holds the classes with axis=N";
  types.require(!(fits_last && fits_first), "label ", to_string(*found), " fits the output ", to_string(x),
                " with classes in axis 1 and in axis ", last, kAsk);
  types.require(fits_last || fits_first, "label is ", to_string(*found), ", the output ", to_string(x), "; wanted [",
                to_string(without_axis(x.shape, last)), "] or [", to_string(without_axis(x.shape, 1)), "]", kAsk);
  return fits_last ? last : 1;
}

void class_number_types(LossTypes& types) {
  types.require(types.known(0) != nullptr, "the first argument is an output of the model");
  const TensorType x = *types.known(0);
  const std::int64_t axis = class_axis(types);
  types.want(1, {DType::i64, without_axis(x.shape, axis)});
  types.want_classes(1, x.shape[static_cast<std::size_t>(axis)], types.options().integer("ignore_index"));
}

std::int64_t settled_axis(const LossCall& c) {
  if (c.o.has("axis")) return c.o.integer("axis") < 0 ? c.o.integer("axis") + c.x().rank() : c.o.integer("axis");
  const Shape &x = c.x().shape(), &t = c.t().shape();
  const std::int64_t last = c.x().rank() - 1;
  if (t.size() == x.size()) return last < 2 ? last : 1;
  return t == without_axis(x, last) ? last : 1;
}

Var sum_of_all(Var x) { return x.builder->sum(x, ops::last_axes(x.rank(), static_cast<std::size_t>(x.rank()))); }
Var mean_of_all(Var x) { return x.builder->mean(x, ops::last_axes(x.rank(), static_cast<std::size_t>(x.rank()))); }

Var LossCall::along(std::string_view option, Var like, std::int64_t axis) const {
  for (const auto& [name, array] : named)
    if (name == option) {
      if (array.shape() == like.shape()) return array;
      if (array.rank() == 1 && like.rank() >= 1 && array.dim(0) == like.dim(0)) return b.broadcast(array, like.shape(), {0});
      throw UserError(
          concat(option, ": the array is ", to_string(array.type()), ", wanted ", to_string(like.type()), " or one number a row"));
    }
  const std::vector<double> numbers = o.numbers(option);
  if (numbers.size() == 1) return b.like(like, numbers[0]);
  const std::int64_t wanted = like.rank() == 0 ? 1 : like.dim(axis);
  if (static_cast<std::int64_t>(numbers.size()) != wanted)
    throw UserError(concat("--loss: ", o.text(), ": ", option, ": found ", numbers.size(), " numbers, wanted ", wanted, ", or one"),
                    ExitCode::usage);
  Tensor values(like.dtype(), {wanted});
  for (std::int64_t i = 0; i < wanted; ++i) values.set(i, numbers[static_cast<std::size_t>(i)]);
  return b.broadcast(b.constant(std::move(values)), like.shape(), {axis});
}

}  // namespace gcomp::passes
