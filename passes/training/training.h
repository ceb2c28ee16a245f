// From a forward graph to a training step: loss, gradients, optimizer. PyTorch's names, formulas and defaults.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/training/loss_scaling.h"
#include "passes/training/losses/loss.h"
#include "passes/training/optimizers/optimizer.h"
#include "passes/training/sharded_state.h"
#include "passes/training/step_options.h"

namespace gcomp::passes {

/// What a forward graph is to be trained by.
struct TrainingRequest {
  LossSpec loss;
  std::optional<OptimizerSpec> optimizer;         ///< none: the gradients are wanted, and nothing is updated
  std::vector<std::string> trained;               ///< states by their names
  std::map<std::string, TensorType> arrays = {};  ///< that the data have, of one batch
  std::optional<LossScaling> scaling = {};
  StepOptions step = {};
  std::int64_t ranks = 1;                              ///< that share the shards; they divide these
  Sharding sharding = Sharding::optimizer;             ///< what each of several ranks holds a share of
  std::int64_t bucket_bytes = std::int64_t{32} << 20;  ///< DistributeOptions::bucket_bytes
  std::int64_t loss_chunks = 1;  ///< parts of rows that the loss is computed by (passes/training/chunk_loss.h)
  std::int64_t shards = 1;       ///< more: the graph is that of one of so many shards of a batch (passes/training/accumulate.h)
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
