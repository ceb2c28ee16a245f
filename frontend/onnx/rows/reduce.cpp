// Reductions over axes. Axes are an attribute up to opset 17 (ReduceSum: 12), an input since.
#include <algorithm>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

/// The reduction of one ONNX operator: before and after the sum (or other combination) over axes.
using Reduce = Var (*)(Builder& b, Var x, const Integers& axes);

Var sum(Builder& b, Var x, const Integers& axes) { return b.sum(x, axes); }
Var mean(Builder& b, Var x, const Integers& axes) {
  std::int64_t count = 1;
  for (std::int64_t a : axes) count *= x.dim(a);
  // Nothing has no mean: 0 / 0. Integers truncate.
  return b.sum(x, axes) / static_cast<double>(count);
}
Var maximum(Builder& b, Var x, const Integers& axes) { return b.max(x, axes); }
Var minimum(Builder& b, Var x, const Integers& axes) { return b.reduce(ops::kReduceMin, x, axes); }
template <const ir::OpDef& op>
Var first(Builder& b, Var x, const Integers& axes) {
  return b.apply(op, {x}, {{"axes", axes}, {"first", true}});
}
Var product(Builder& b, Var x, const Integers& axes) { return b.reduce(ops::kReduceProduct, x, axes); }
Var absolute_sum(Builder& b, Var x, const Integers& axes) { return b.sum(ops::kAbs(x), axes); }
Var square_sum(Builder& b, Var x, const Integers& axes) { return b.sum(x * x, axes); }
Var log_sum(Builder& b, Var x, const Integers& axes) { return ops::kLog(b.sum(x, axes)); }

Var norm(Builder& b, Var x, const Integers& axes) {
  const DType dtype = x.dtype();
  if (!is_float(dtype)) x = b.cast(x, DType::f64);
  if (axes.empty()) return b.cast(ops::kAbs(x), dtype);
  return b.cast(root_of_squares(b.sum(x * x, axes)), dtype);
}

/// max + log(sum(exp(x - max))), the maximum as a constant; a row of -inf gives -inf.
Var log_sum_exp(Builder& b, Var x, const Integers& axes) {
  if (axes.empty()) return x;
  Var top = b.max(x, axes);
  top = b.select(ops::kIsInf(top), b.like(top, 0), top);
  return ops::kLog(b.sum(ops::kExp(x - b.unreduce(top, x.shape(), axes)), axes)) + top;
}

template <Reduce reduce>
Items reduce_row(NodeContext& n) {
  Var x = n.var(0);
  Integers axes = n.has_attribute("axes") ? n.integers("axes") : n.has(1) ? n.integers(1, "axes") : Integers();
  if (axes.empty() && !n.flag("noop_with_empty_axes"))
    for (std::int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  axes = n.axes(axes, x.rank());
  Shape kept = x.shape();
  for (std::int64_t a : axes) kept[static_cast<std::size_t>(a)] = 1;
  Var y = reduce(n.b(), x, axes);
  return n.flag("keepdims", true) ? n.b().reshape(y, kept) : y;
}

template <Reduce reduce, const ir::OpDef& op>
Items extremum_row(NodeContext& n) {
  return n.has_kink(Kink::first) ? reduce_row<first<op>>(n) : reduce_row<reduce>(n);
}

template <const ir::OpDef& op>
Items position_row(NodeContext& n) {
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", 0), x.rank());
  const bool last = n.flag("select_last_index");
  if (last) {
    Integers starts(x.shape().size()), steps(x.shape().size(), 1);
    starts[static_cast<std::size_t>(axis)] = x.dim(axis) - 1;
    steps[static_cast<std::size_t>(axis)] = -1;
    x = n.b().slice(x, starts, x.shape(), steps);
  }
  Var position = n.b().reduce(op, x, {axis}, n.flag("keepdims", true));
  return last ? static_cast<double>(x.dim(axis) - 1) - position : position;
}

constexpr Row kReduceRows[] = {
    {"ReduceSum", 1, reduce_row<sum>},
    {"ReduceMean", 1, reduce_row<mean>},
    {"ReduceMax", 1, extremum_row<maximum, ops::kReduceMax>},
    {"ReduceMin", 1, extremum_row<minimum, ops::kReduceMin>},
    {"ReduceProd", 1, reduce_row<product>},
    {"ReduceL1", 1, reduce_row<absolute_sum>},
    {"ReduceL2", 1, reduce_row<norm>},
    {"ReduceSumSquare", 1, reduce_row<square_sum>},
    {"ReduceLogSum", 1, reduce_row<log_sum>},
    {"ReduceLogSumExp", 1, reduce_row<log_sum_exp>},
    {"ArgMax", 1, position_row<ops::kArgMax>},
    {"ArgMin", 1, position_row<ops::kArgMin>},
};

}  // namespace

std::span<const Row> reduce_rows() { return kReduceRows; }

}  // namespace gcomp::frontend
