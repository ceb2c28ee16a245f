// Optimizers, by PyTorch's names, formulas and defaults.
#pragma once

#include <cstdint>

#include "gcomp/optional.h"

namespace gcomp {

enum class OptimizerKind : std::uint8_t { sgd, adam, adamw };

/// `weight_decay` defaults to 0 for sgd and adam, 0.01 for adamw.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::adamw;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  Optional<double> weight_decay;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

}  // namespace gcomp
