// Loss scaling for f16, whose smallest numbers are larger than many gradients: PyTorch's GradScaler inside the graph, so that no
// step waits for the host. The loss is multiplied before it is differentiated, gradients are divided in f32, and a step with a
// gradient or a loss that is not finite changes nothing but the scale.
//
//   %s = mul %loss, %loss_scale                     differentiate %s instead of %loss
//   %g = mul %w_gradient, 1 / %loss_scale           for each gradient
//   %finite = max(|%loss|, max |%g|, ...) < inf
//   update %w, select %finite, %new, %w             for each update
//   update %loss_scale, select %finite, (every 2,000 good steps 2, else 1) * %loss_scale, 0.5 * %loss_scale
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Of GradScaler's defaults.
inline constexpr double kFirstLossScale = 65536;
inline constexpr std::int64_t kGoodStepsToDouble = 2000;

struct LossScaling {
  std::optional<double> constant;  ///< none: dynamic
};

/// What make_training_step() knows between its parts.
struct ScaledLoss {
  ir::Value* scale = nullptr;   ///< f32[]: the state `loss_scale`, or a number
  ir::Value* scaled = nullptr;  ///< to be differentiated
};
/// Adds the state `loss_scale` (f32[], from 65536) where the scale is dynamic.
ScaledLoss scale_loss(ir::Graph& graph, ir::Value* loss, const LossScaling& scaling);
/// Each gradient divided by the scale.
std::vector<ir::Value*> unscale(ir::Graph& graph, const std::vector<ir::Value*>& gradients, ir::Value* scale);

/// The outputs of a step that may be skipped, beside the loss.
struct SkipReport {
  ir::Value* scale = nullptr;    ///< f32[]: of the next step; null where the loss is not scaled
  ir::Value* skipped = nullptr;  ///< i64[]: 1 where nothing was updated
};
/// To be called last. Every update so far, but those of `attempts`, happens only where loss and gradients are finite; then the
/// scale and its counter `good_steps` (i64[]) are updated, where there are any. `attempts` are counters of steps begun, not of
/// steps done. `norm` is that of all gradients (f64[]), whose being finite says it of them; where it is null they are looked at one
/// by one. With SkipWhen::beyond_limits, which needs `norm`, loss and norm must not exceed two more states either, kLossLimit and
/// kNormLimit (f64[], from infinity), that who drives the step sets before each.
enum class SkipWhen : std::uint8_t { not_finite, beyond_limits };
inline constexpr char kLossLimit[] = "loss_limit", kNormLimit[] = "gradient_norm_limit";
SkipReport skip_non_finite(ir::Graph& graph, const ScaledLoss& scaled, ir::Value* loss, const std::vector<ir::Value*>& gradients,
                           const std::vector<ir::Value*>& attempts, ir::Value* norm = nullptr,
                           SkipWhen when = SkipWhen::not_finite);

}  // namespace gcomp::passes
