// Optimizers, by PyTorch's names, formulas and defaults (docs/training.md has all of them with their options).
#pragma once

#include <cstdint>
#include <string>

namespace gcomp {

struct Optimizer {
  std::string text = "adamw";    ///< NAME or NAME(option=value, ...): "sgd(momentum=0.9)"
  bool turned_momentum = false;  ///< each step takes its momentum, or first beta, from Trainer::set_momentum()
};

/// Parameters that the optimizer updates by other options than the rest, once a training step is made.
struct ParameterGroup {
  std::string text;           ///< as it was given: "kind:bias: weight_decay=0"
  double rate = 1;            ///< times the learning rate
  std::int64_t tensors = 0;   ///< parameters that are in it
  std::int64_t elements = 0;  ///< of all of them together
};

}  // namespace gcomp
