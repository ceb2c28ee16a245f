// Operators that make tensors from attributes and shapes.
#include <cmath>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

Items constant_row(NodeContext& n) {
  if (n.has_attribute("value")) return n.tensor("value");
  if (n.has_attribute("value_float")) return n.converted(Tensor::scalar(DType::f32, n.real("value_float", 0)));
  if (n.has_attribute("value_int")) return Tensor::of_integers(std::vector{n.integer("value_int", 0)}).reshaped({});
  if (n.has_attribute("value_ints")) return Tensor::of_integers(n.integers("value_ints"));
  if (n.has_attribute("value_floats")) {
    const auto values = n.reals("value_floats");
    Tensor tensor(DType::f32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<std::int64_t>(i), values[i]);
    return n.converted(std::move(tensor));
  }
  n.unsupported("constants of strings and sparse tensors are not supported");
}

Items constant_of_shape_row(NodeContext& n) {
  const Shape shape = n.integers(0, "the shape");
  for (std::int64_t dim : shape) n.require(dim >= 0, "the shape has the dimension ", dim);
  Tensor value = n.has_attribute("value") ? n.tensor("value") : n.converted(Tensor::scalar(DType::f32, 0));
  n.require(value.elements() == 1, "the value is ", to_string(value.type()), ", wanted one element");
  if (is_uniform(value)) return n.b().full({value.dtype(), shape}, value.at(0));
  return n.b().broadcast(
      n.b().apply(ir::ops::kConstant, {}, {{"value", std::make_shared<const Tensor>(std::move(value).reshaped({}))}}), shape);
}

/// start + i * delta: each element for itself, so that rounding does not pile up.
Items range_row(NodeContext& n) {
  const DType dtype = n.type(0).dtype;
  const double start = n.number(0, "the start"), limit = n.number(1, "the limit"), delta = n.number(2, "the step");
  n.require(delta != 0 && std::isfinite(start) && std::isfinite(limit) && std::isfinite(delta), "a range from ", start, " to ",
            limit, " in steps of ", delta);
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  n.require(count < 4294967296.0, "a range of ", count, " elements is too long");
  Var x = n.b().iota({is_float(dtype) ? DType::i64 : dtype, {static_cast<std::int64_t>(count)}}, 0);
  x = n.b().cast(x, dtype);
  if (delta != 1) x = x * delta;
  return start != 0 ? x + start : x;
}

Items eye_like_row(NodeContext& n) {
  const Shape& shape = n.shape(0);
  n.require(shape.size() == 2, "input is ", to_string(n.type(0)), ", wanted rank 2");
  const DType dtype = n.has_attribute("dtype") ? n.dtype_of(n.integer("dtype", 1)) : n.type(0).dtype;
  Var row = n.b().iota({DType::i64, shape}, 0), column = n.b().iota({DType::i64, shape}, 1);
  return n.b().cast(row + static_cast<double>(n.integer("k", 0)) == column, dtype);
}

constexpr Row kConstantRows[] = {
    {"Constant", 1, constant_row, false},
    {"ConstantOfShape", 9, constant_of_shape_row},
    {"Range", 11, range_row},
    {"EyeLike", 9, eye_like_row},
};

}  // namespace

std::span<const Row> constant_rows() { return kConstantRows; }

}  // namespace gcomp::frontend
