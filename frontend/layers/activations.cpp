// Activations and dropout.
#include "frontend/formulas/activations.h"

#include <numbers>

#include "frontend/formulas/norms.h"
#include "frontend/layers/impl.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

namespace table = ir::ops;
namespace formulas = frontend::formulas;

}  // namespace

Var Layers::relu(Var x) { return table::kRelu(x); }
Var Layers::relu6(Var x) { return formulas::clamp(x, 0, 6); }
Var Layers::leaky_relu(Var x, double negative_slope) { return formulas::leaky_relu(x, negative_slope); }

Var Layers::prelu(const std::string& name, Var x, PreluOptions options) {
  impl_.builder.set_origin(name);
  const std::int64_t count = options.num_parameters, channels = x.rank() > 1 ? x.dim(1) : 1;
  check_user(count == 1 || (count > 1 && count == channels), frontend::layer(name), count, " slopes for an input ",
             to_string(x.type()), ", wanted one, or one for each of ", channels, " channels");
  Var slope = parameter(name + ".weight", {count}, {options.init});
  return formulas::prelu(x, count == 1 ? impl_.builder.broadcast(slope, x.shape()) : formulas::per_channel(slope, x.shape()));
}

Var Layers::elu(Var x, double alpha) { return formulas::elu(x, alpha); }
Var Layers::selu(Var x) { return formulas::selu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946); }
Var Layers::celu(Var x, double alpha) {
  check_user(alpha != 0, "celu: alpha is 0, by which it divides");
  return formulas::celu(x, alpha);
}
Var Layers::gelu(Var x, GeluForm form) {
  if (form == GeluForm::tanh) return formulas::gelu_tanh(x);
  return x * (table::kErf(x * (1 / std::numbers::sqrt2)) + 1.0) * 0.5;
}
Var Layers::silu(Var x) { return formulas::swish(x, 1); }
Var Layers::mish(Var x) { return formulas::mish(x); }
Var Layers::sigmoid(Var x) { return table::kSigmoid(x); }
Var Layers::log_sigmoid(Var x) { return -table::kSoftplus(-x); }
Var Layers::tanh(Var x) { return table::kTanh(x); }

Var Layers::softplus(Var x, SoftplusOptions options) {
  check_user(options.beta != 0, "softplus: beta is 0, by which it divides");
  Var scaled = x * options.beta;
  return impl_.builder.select(impl_.builder.like(x, options.threshold) < scaled, x, table::kSoftplus(scaled) / options.beta);
}

Var Layers::softsign(Var x) { return formulas::softsign(x); }
Var Layers::hardtanh(Var x, HardtanhOptions options) {
  check_user(options.min_val <= options.max_val, "hardtanh: min_val is ", options.min_val, ", wanted at most the max_val ",
             options.max_val);
  return formulas::clamp(x, options.min_val, options.max_val);
}
Var Layers::hardsigmoid(Var x) { return formulas::hard_sigmoid(x, 1.0 / 6, 0.5); }
Var Layers::hardswish(Var x) { return formulas::hard_swish(x); }

Var Layers::glu(Var x, std::int64_t axis) {
  axis = frontend::axis_of("glu: ", axis, x);
  const std::int64_t half = x.dim(axis) / 2;
  check_user(2 * half == x.dim(axis), "glu: axis ", axis, " of ", to_string(x.type()), " has no two halves");
  Var gate = impl_.builder.slice_axis(x, axis, half, half);
  return impl_.builder.slice_axis(x, axis, 0, half) * table::kSigmoid(gate);
}

Var Layers::softmax(Var x, std::int64_t axis) {
  return impl_.builder.apply(table::kSoftmax, {x}, {{"axis", frontend::axis_of("softmax: ", axis, x)}});
}
Var Layers::log_softmax(Var x, std::int64_t axis) {
  return impl_.builder.apply(table::kLogSoftmax, {x}, {{"axis", frontend::axis_of("log_softmax: ", axis, x)}});
}

Var Layers::dropout(Var x, double p) {
  check_user(p >= 0 && p <= 1, "dropout: p is ", p, ", wanted 0 to 1");
  check_user(is_float(x.dtype()), "dropout: the input is ", to_string(x.type()), ", wanted floats");
  if (!training() || p == 0) return x;
  return formulas::drop(x, p, impl_.random.uniform(x.shape())).y;
}

}  // namespace gcomp
