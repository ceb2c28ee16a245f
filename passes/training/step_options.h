// What a training step does beside loss and optimizer; nothing where nothing is asked for.
#pragma once

#include <optional>

#include "passes/training/clip_gradients.h"
#include "passes/training/optimizers/optimizer.h"

namespace gcomp::passes {

struct StepOptions {
  ParameterGroups groups = {};
  GradientClipping clipping = {};
  std::optional<double> average = {};  ///< decay of the parameters' exponential moving average
  bool skip_non_finite = false;        ///< a step whose loss or gradients are not finite changes nothing
  bool skip_spikes = false;            ///< nor one beyond the limits that are set (passes/training/loss_scaling.h); includes that

  /// Whether the norm of all gradients is computed, which the step then gives.
  bool has_norm() const { return clipping.norm || skip_non_finite; }
};

}  // namespace gcomp::passes
