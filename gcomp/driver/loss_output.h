// Which output of a model a loss looks at, and which others its labels would fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/imported_model.h"
#include "gcomp/driver/index_limits.h"
#include "passes/training/training.h"

namespace gcomp::driver {

/// An output of floats whose labels may have the type of those that are given.
struct LossOutput {
  std::string name;
  TensorType type;
  std::int64_t classes = 0;  ///< cross_entropy: labels are below this
};

/// What a loss looks at, for any but LossKind::output.
struct LossTarget {
  LossOutput output;
  passes::LabelSpec label;
  std::vector<LossOutput> others;  ///< in the model's order
};

/// `loss.output`, or without it the first output of floats; `found` is the type of the labels, where there are any. Throws
/// UserError where there is no such output (exit 2, with the nearest name), it has no floats, or the labels do not fit it: the
/// message names the outputs that they do fit.
LossTarget loss_target(const frontend::ImportedModel& model, const passes::LossSpec& loss, const std::optional<TensorType>& found);

/// "; the labels fit output 'b', f32[8,3]: --output b", for the end of a message; "" without such outputs.
std::string suggest_outputs(std::span<const LossOutput> fitting);
/// Those that have a class of this number.
std::vector<LossOutput> outputs_with_class(std::span<const LossOutput> outputs, std::int64_t label);

/// Throws UserError naming the first of the labels that is no class of the output, and those of `others` that all labels fit.
void check_labels(const TensorView& labels, std::int64_t classes, std::span<const LossOutput> others);

}  // namespace gcomp::driver
