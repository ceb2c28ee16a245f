// Activations as algebra. Gradients at kinks are PyTorch's: a select whose unselected side is a constant gives 0.
#pragma once

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// x where it is above 0, else x * slope.
Var leaky_relu(Var x, double slope);
/// The same with a slope for each element.
Var prelu(Var x, Var slope);
/// x where it is above 0, else alpha * (exp(x) - 1).
Var elu(Var x, double alpha);
/// x where it is above 0, else alpha * (exp(x / alpha) - 1).
Var celu(Var x, double alpha);
/// gamma * elu(x, alpha).
Var selu(Var x, double alpha, double gamma);
/// Bounds give no gradient.
Var clamp(Var x, double low, double high);
/// x * alpha + beta between 0 and 1.
Var hard_sigmoid(Var x, double alpha, double beta);
/// x * hard_sigmoid(x, 1 / 6, 1 / 2).
Var hard_swish(Var x);
/// x / (|x| + 1).
Var softsign(Var x);
/// x * tanh(softplus(x)).
Var mish(Var x);
/// x * sigmoid(alpha * x).
Var swish(Var x, double alpha);
/// GELU with tanh in the place of the error function.
Var gelu_tanh(Var x);

}  // namespace gcomp::frontend::formulas
