// The loss of one of the shards that a batch is cut into: what it adds to the loss of the whole batch, so that shares add up to
// that loss and their gradients to its gradient.
//
//   mse                      sum(values) / (shards * elements)
//   cross_entropy            sum(values) / %loss_count            the weights of all shards: a state, since labels decide
//   dice, output:NAME        value / shards                       no sum over a count: the mean over shards
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/training/losses/loss.h"

namespace gcomp::passes {

/// What a term of the loss is divided by, where data decide it.
struct ShardCount {
  ir::Value* of_shard = nullptr;  ///< made of the batch's arrays alone; a scalar
  ir::Value* of_batch = nullptr;  ///< the state that holds the sum over all shards
};

struct ShardLoss {
  ir::Value* share = nullptr;         ///< an output of Role::loss
  std::vector<ShardCount> counts;     ///< for each term that has one
  std::vector<std::string> averaged;  ///< terms, as they are written, that are averaged over shards instead
};

/// As attach_loss(), in the graph of one shard of `shards`. An expression is taken by its terms where it is linear in them, else
/// averaged as a whole.
ShardLoss attach_shard_loss(ir::Graph& graph, const LossSpec& loss, std::int64_t shards,
                            const std::map<std::string, TensorType>& arrays = {});

}  // namespace gcomp::passes
