// What a loss looks at in a model, which arrays of the data it reads, and which other outputs its labels would fit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "frontend/imported_model.h"
#include "gcomp/driver/index_limits.h"
#include "ir/graph.h"
#include "passes/training/losses/loss.h"

namespace gcomp::driver {

/// An output of floats whose labels may have the type of those that are given.
struct LossOutput {
  std::string name;
  TensorType type;
  std::int64_t classes = 0;  ///< labels are below this, where they are class numbers
};

struct LossTarget {
  passes::BoundLoss bound;
  std::string output;              ///< that a loss without arguments looks at; "" for others
  std::vector<LossOutput> others;  ///< of a loss without arguments, in the model's order
};

/// `arrays` are those of the data for one batch, where there are any. Throws UserError as passes::bind_loss(); where the loss has
/// no arguments and the labels do not fit, the message names the outputs that they do fit.
LossTarget loss_target(const frontend::ImportedModel& model, const ir::Graph& graph, const passes::LossSpec& loss,
                       const std::map<std::string, TensorType>& arrays);

/// "; the labels fit output 'b', f32[8,3]: --output b", for the end of a message; "" without such outputs.
std::string suggest_outputs(std::span<const LossOutput> fitting);
/// Those that have a class of this number.
std::vector<LossOutput> outputs_with_class(std::span<const LossOutput> outputs, std::int64_t label);

/// Throws UserError naming the first of an array's labels that is no class, and those of `others` that all labels fit.
void check_labels(const TensorView& labels, const LabelLimit& limit, std::span<const LossOutput> others);

}  // namespace gcomp::driver
