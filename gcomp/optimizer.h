// Optimizers, by PyTorch's names, formulas and defaults (docs/training.md has all of them with their options).
#pragma once

#include <string>

namespace gcomp {

struct Optimizer {
  std::string text = "adamw";    ///< NAME or NAME(option=value, ...): "sgd(momentum=0.9)"
  bool turned_momentum = false;  ///< each step takes its momentum, or first beta, from Trainer::set_momentum()
};

}  // namespace gcomp
