// Optimizers, by PyTorch's names, formulas and defaults (docs/training.md has all of them with their options).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gcomp/function.h"
#include "gcomp/var.h"

namespace gcomp {
namespace passes {
struct ParameterUpdate;
}  // namespace passes

/// What an optimizer's rule of the user's own sees of one parameter in one step.
class OptimizerStep {
 public:
  explicit OptimizerStep(passes::ParameterUpdate& update) : update_(update) {}

  Var parameter() const;
  Var gradient() const;       ///< of the parameter's type
  Var learning_rate() const;  ///< f64[]
  Var step() const;           ///< f64[]: 1 in the first
  /// f64[], as a value of the parameter's type.
  Var spread(Var scalar) const;
  /// A state of this parameter and of its type, "PARAMETER.NAME".
  Var state(std::string_view name, double initial = 0);
  void update(Var state, Var value);

 private:
  passes::ParameterUpdate& update_;
};

struct Optimizer {
  std::string text = "adamw";    ///< NAME or NAME(option=value, ...): "sgd(momentum=0.9)"; FILE.gir: docs/training.md
  bool turned_momentum = false;  ///< each step takes its momentum, or first beta, from Trainer::set_momentum()
  /// Gives a parameter's new value, in the place of what `text` names. Called once for each parameter, while a step is compiled.
  Function<Var(OptimizerStep&)> rule = {};
};

/// Parameters that the optimizer updates by other options than the rest, once a training step is made.
struct ParameterGroup {
  std::string text;           ///< as it was given: "kind:bias: weight_decay=0"
  double rate = 1;            ///< times the learning rate
  std::int64_t tensors = 0;   ///< parameters that are in it
  std::int64_t elements = 0;  ///< of all of them together
};

}  // namespace gcomp
