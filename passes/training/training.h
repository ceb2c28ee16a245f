// From a forward graph to a training step: loss, gradients, optimizer. PyTorch's names, formulas and defaults.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/training/loss_scaling.h"
#include "passes/training/optimizers/optimizer.h"
#include "passes/training/step_options.h"

namespace gcomp::passes {

enum class LossKind : std::uint8_t { cross_entropy, mse, l1, bce, bce_with_logits, output };

struct LossSpec {
  LossKind kind = LossKind::cross_entropy;
  std::optional<std::int64_t> axis;  ///< cross_entropy: the class axis
  /// The graph output that the loss looks at, "" for the first of floats; the one that is the loss for LossKind::output.
  std::string output;
};
/// "cross_entropy", "cross_entropy:axis=1", "mse", "l1", "bce", "bce_with_logits", "output:NAME". Throws UserError (exit 2)
/// with the nearest name. `output` is the output that the loss looks at, "" for the first of floats; not for "output:NAME".
LossSpec parse_loss(std::string_view text, std::string_view output = {});

/// The graph's input that the loss compares an output with, and the data's array for it.
inline constexpr std::string_view kLabelInput = "label";

/// Type of the array that the loss compares with, named `label`; `found` is what the data has, which decides the class axis
/// of cross_entropy: the last where the labels' shape is the output's without it, else axis 1. Null for LossKind::output.
/// Throws UserError where both or neither fit.
struct LabelSpec {
  TensorType type;
  std::int64_t axis = -1;  ///< cross_entropy: the class axis, non-negative
};
std::optional<LabelSpec> label_of(const LossSpec& loss, const TensorType& output, const std::optional<TensorType>& found);

/// Adds the input `label` and the mean loss over all elements of the output that it looks at; gives the loss. A node's result of
/// that name gets another; no input or state may have it.
///   graph(%x) -> (%logits)    becomes    graph(%x, %label: i64[64] label) -> (%logits, %loss loss)
ir::Value* attach_loss(ir::Graph& graph, const LossSpec& loss, const std::optional<TensorType>& label = {});

/// What a forward graph is to be trained by.
struct TrainingRequest {
  LossSpec loss;
  std::optional<OptimizerSpec> optimizer;  ///< none: the gradients are wanted, and nothing is updated
  std::vector<std::string> trained;        ///< states by their names
  std::optional<TensorType> label = {};    ///< of the labels of one batch, where the data has any
  std::optional<LossScaling> scaling = {};
  StepOptions step = {};
};

/// What a step gives beside the loss; null for what it does not.
struct StepReport {
  ir::Value* scale = nullptr;          ///< f32[]: of the next step
  ir::Value* skipped = nullptr;        ///< i64[]: 1 where nothing was updated
  ir::Value* gradient_norm = nullptr;  ///< f64[]: before clipping
};
/// Outputs become the loss and what `report` has. Each has its role (ir/base/role.h).
void show_loss(ir::Graph& graph, ir::Value* loss, const StepReport& report);
/// Outputs become the loss and the gradients; no updates of any kind.
void show_gradients(ir::Graph& graph, ir::Value* loss, const std::vector<ir::Value*>& gradients);

/// States of these names, in this order.
std::vector<ir::Value*> states_named(const ir::Graph& graph, const std::vector<std::string>& names);
/// States that count steps or draws.
std::vector<ir::Value*> counters_of(const ir::Graph& graph);

/// The whole step, without mixed precision: the rows of the pass table from attach_loss to show_loss.
void make_training_step(ir::Graph& graph, const LossSpec& loss, const OptimizerSpec& optimizer,
                        const std::vector<std::string>& trained, const std::optional<TensorType>& label = {},
                        const std::optional<LossScaling>& scaling = {}, const StepOptions& step = {});

}  // namespace gcomp::passes
