#include "frontend/formulas/activations.h"

#include <cmath>

#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {
namespace {

namespace ops = ir::ops;

/// expm1 where x <= 0, else 0: the branch that is not taken must not overflow into a NaN gradient. The slope at 0 is 1.
Var expm1_below_zero(Var x, double scale = 1) {
  Var below = x.builder->select(x.builder->like(x, 0) < x, x.builder->like(x, 0), x);
  return ops::kExpm1(scale == 1 ? below : below / scale);
}
Var positive(Var x) { return x.builder->like(x, 0) < x; }

}  // namespace

Var leaky_relu(Var x, double slope) { return x.builder->select(positive(x), x, x * slope); }
Var prelu(Var x, Var slope) { return x.builder->select(positive(x), x, x * slope); }
Var elu(Var x, double alpha) { return x.builder->select(positive(x), x, expm1_below_zero(x) * alpha); }
Var celu(Var x, double alpha) { return x.builder->select(positive(x), x, expm1_below_zero(x, alpha) * alpha); }
Var selu(Var x, double alpha, double gamma) {
  return x.builder->select(positive(x), x * gamma, expm1_below_zero(x) * (alpha * gamma));
}

Var clamp(Var x, double low, double high) {
  ir::Builder& b = *x.builder;
  return b.select(x <= b.like(x, low), b.like(x, low), b.select(b.like(x, high) <= x, b.like(x, high), x));
}
Var hard_sigmoid(Var x, double alpha, double beta) { return clamp(x * alpha + beta, 0, 1); }
Var hard_swish(Var x) {
  ir::Builder& b = *x.builder;
  // Selected on x itself, so that the slope is exactly 0 at -3 and 1 at 3.
  Var middle = x * (x * (1.0 / 6) + 0.5);
  // x * 0 is NaN at -inf, as x * relu6(x + 3) / 6 is.
  return b.select(x <= b.like(x, -3), x * 0.0, b.select(b.like(x, 3) <= x, x, middle));
}

Var softsign(Var x) { return x / (ops::kAbs(x) + 1.0); }
Var mish(Var x) { return x * ops::kTanh(ops::kSoftplus(x)); }
Var swish(Var x, double alpha) { return x * ops::kSigmoid(alpha == 1 ? x : x * alpha); }
Var gelu_tanh(Var x) { return x * ((ops::kTanh((x + x * x * x * 0.044715) * std::sqrt(2 / M_PI)) + 1.0) * 0.5); }

}  // namespace gcomp::frontend::formulas
