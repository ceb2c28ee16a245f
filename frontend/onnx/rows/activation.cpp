// Activations and softmax.
#include <cmath>

#include "frontend/formulas/activations.h"
#include "frontend/onnx/rows.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

template <const ir::OpDef& op>
Items activation_row(NodeContext& n) {
  return op(n.var(0));
}

Items leaky_relu_row(NodeContext& n) { return formulas::leaky_relu(n.var(0), n.real("alpha", 0.01)); }
Items prelu_row(NodeContext& n) { return formulas::prelu(n.var(0), broadcast_to(n.var(1), n.shape(0))); }
Items elu_row(NodeContext& n) { return formulas::elu(n.var(0), n.real("alpha", 1)); }
Items celu_row(NodeContext& n) { return formulas::celu(n.var(0), n.real("alpha", 1)); }
Items selu_row(NodeContext& n) {
  return formulas::selu(n.var(0), n.real("alpha", 1.67326319217681884765625), n.real("gamma", 1.05070102214813232421875));
}
Items thresholded_relu_row(NodeContext& n) {
  Var x = n.var(0);
  return n.b().select(n.b().like(x, n.real("alpha", 1)) < x, x, n.b().like(x, 0));
}
Items hard_sigmoid_row(NodeContext& n) { return formulas::hard_sigmoid(n.var(0), n.real("alpha", 0.2), n.real("beta", 0.5)); }
Items hard_swish_row(NodeContext& n) { return formulas::hard_swish(n.var(0)); }
Items softsign_row(NodeContext& n) { return formulas::softsign(n.var(0)); }
Items mish_row(NodeContext& n) { return formulas::mish(n.var(0)); }
Items swish_row(NodeContext& n) { return formulas::swish(n.var(0), n.real("alpha", 1)); }
/// Of a gate and a value of one shape.
Items swiglu_row(NodeContext& n) {
  n.require(n.type(0) == n.type(1), "A is ", to_string(n.type(0)), ", B ", to_string(n.type(1)), ", wanted the same");
  return formulas::swish(n.var(0), n.real("alpha", 1)) * n.var(1);
}
Items gelu_row(NodeContext& n) {
  Var x = n.var(0);
  const std::string form = n.text("approximate", "none");
  n.require(form == "none" || form == "tanh", "approximate is '", form, "', wanted none or tanh");
  return form == "none" ? x * ((ops::kErf(x * M_SQRT1_2) + 1.0) * 0.5) : formulas::gelu_tanh(x);
}
Items shrink_row(NodeContext& n) {
  Var x = n.var(0), zero = n.b().like(x, 0);
  const double bound = n.real("lambd", 0.5), bias = n.real("bias", 0);
  return n.b().select(x < n.b().like(x, -bound), x + bias, n.b().select(n.b().like(x, bound) < x, x - bias, zero));
}

/// Calls `of(rows, axis)` on the operand as opset 13 has it: along one axis; before that all axes from `axis` on are one.
template <class F>
Var along_axis(NodeContext& n, const F& of) {
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", n.opset() >= 13 ? -1 : x.rank() > 1 ? 1 : 0), x.rank());
  if (n.opset() >= 13 || axis == x.rank() - 1) return of(x, axis);
  std::int64_t rows = 1, columns = 1;
  for (std::int64_t i = 0; i < x.rank(); ++i) (i < axis ? rows : columns) *= x.dim(i);
  return n.b().reshape(of(n.b().reshape(x, {rows, columns}), 1), x.shape());
}
template <const ir::OpDef& op>
Items softmax_row(NodeContext& n) {
  return along_axis(n, [&](Var x, std::int64_t axis) { return n.b().apply(op, {x}, {{"axis", axis}}); });
}
Items hardmax_row(NodeContext& n) {
  return along_axis(n, [&](Var x, std::int64_t axis) {
    Var winner = n.b().apply(ops::kArgMax, {x}, {{"axes", Integers{axis}}});
    Var hit = n.b().iota({DType::i64, x.shape()}, axis) == n.b().unreduce(winner, x.shape(), {axis});
    return n.b().select(hit, n.b().like(x, 1), n.b().like(x, 0));
  });
}

constexpr Row kActivationRows[] = {
    {"Relu", 6, activation_row<ops::kRelu>},
    {"Sigmoid", 6, activation_row<ops::kSigmoid>},
    {"Tanh", 6, activation_row<ops::kTanh>},
    {"Softplus", 1, activation_row<ops::kSoftplus>},
    {"LeakyRelu", 6, leaky_relu_row},
    {"PRelu", 7, prelu_row},
    {"Elu", 6, elu_row},
    {"Celu", 12, celu_row},
    {"Selu", 6, selu_row},
    {"ThresholdedRelu", 10, thresholded_relu_row},
    {"HardSigmoid", 6, hard_sigmoid_row},
    {"HardSwish", 14, hard_swish_row},
    {"Softsign", 1, softsign_row},
    {"Mish", 18, mish_row},
    {"Swish", 24, swish_row},
    {"SwiGLU", 28, swiglu_row},
    {"Gelu", 20, gelu_row},
    {"Gelu", 1, gelu_row, true, "com.microsoft"},
    {"Shrink", 9, shrink_row},
    {"Softmax", 1, softmax_row<ops::kSoftmax>},
    {"LogSoftmax", 1, softmax_row<ops::kLogSoftmax>},
    {"Hardmax", 1, hardmax_row},
};

}  // namespace

std::span<const Row> activation_rows() { return kActivationRows; }

}  // namespace gcomp::frontend
