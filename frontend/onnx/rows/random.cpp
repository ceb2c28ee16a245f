// Dropout and the random operators. Numbers are functions of (seed, step, op, sample, element): see ir/ops/random.h.
#include "frontend/formulas/random.h"

#include <cmath>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

Var draw(NodeContext& n, const Shape& shape, DType dtype) { return n.b().cast(n.state().draw_uniform(shape), dtype); }

/// Whether the file has this node in its training form.
bool dropout_trains(NodeContext& n) {
  if (n.opset() < 7) return !n.flag("is_test");
  return n.opset() >= 12 && n.has(2) && n.number(2, "training_mode") != 0;
}

Items dropout_row(NodeContext& n) {
  Builder& b = n.b();
  const double ratio = n.opset() >= 12 ? (n.has(1) ? n.number(1, "the ratio") : 0.5) : n.real("ratio", 0.5);
  n.require(ratio >= 0 && ratio <= 1, "the ratio is ", ratio, ", wanted 0 to 1");
  const bool form = dropout_trains(n);
  if (ratio > 0) ++n.state().forms.of(form).dropouts;
  const TensorType mask{DType::boolean, n.shape(0)};
  if (!n.trains(form) || ratio == 0) {
    Items items(n.any(0));
    if (n.wants(1)) items.push_back({b.full(mask, 1), nullptr, nullptr});
    return items;
  }
  if (!form) n.repair(concat("Dropout '", n.name(), "' is in inference form: it drops with ratio ", ratio, " in training"));
  const formulas::Dropped dropped = formulas::drop(n.var(0), ratio, draw(n, n.shape(0), DType::f32));
  return Items::of({dropped.y, dropped.keep});
}

DType dtype_or(NodeContext& n, DType otherwise) { return n.has_attribute("dtype") ? n.dtype_of(n.integer("dtype", 1)) : otherwise; }

Items bernoulli_row(NodeContext& n) {
  Var p = n.var(0);
  return n.b().cast(draw(n, p.shape(), p.dtype()) < p, dtype_or(n, p.dtype()));
}

Shape random_shape(NodeContext& n) { return n.has(0) ? n.shape(0) : n.integers("shape"); }
DType random_dtype(NodeContext& n) { return dtype_or(n, n.has(0) ? n.type(0).dtype : import_dtype(n.options(), DType::f32)); }

Items uniform_row(NodeContext& n) {
  const double low = n.real("low", 0), high = n.real("high", 1);
  return draw(n, random_shape(n), random_dtype(n)) * (high - low) + low;
}

/// Box and Muller's method: sqrt(-2 log(1 - u)) cos(2 pi v).
Items normal_row(NodeContext& n) {
  const Shape shape = random_shape(n);
  Var u = draw(n, shape, DType::f32), v = draw(n, shape, DType::f32);
  Var normal = ops::kSqrt(ops::kLog(1.0 - u) * -2.0) * ops::kCos(v * (2 * M_PI));
  return n.b().cast(normal, random_dtype(n)) * n.real("scale", 1) + n.real("mean", 0);
}

constexpr Row kRandomRows[] = {
    {"Dropout", 1, dropout_row, false},       {"Bernoulli", 15, bernoulli_row, false},
    {"RandomUniform", 1, uniform_row, false}, {"RandomUniformLike", 1, uniform_row, false},
    {"RandomNormal", 1, normal_row, false},   {"RandomNormalLike", 1, normal_row, false},
};

}  // namespace

std::span<const Row> random_rows() { return kRandomRows; }

}  // namespace gcomp::frontend
