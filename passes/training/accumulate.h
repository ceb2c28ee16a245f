// Gradient accumulation: a training step in several programs over the same states. A batch is cut into shards of consecutive rows;
// `shard` runs once for each, in their order, and what it computes adds up in states of the role `scratch`, which hold nothing
// between steps. The graph that is left is what a step does once, on the totals.
//
//   count      for each shard, before the first of those:  what the loss is divided by, from the data alone (may be missing)
//   shard      for each shard:                             %w.gradient = the gradient of its share of the loss
//   combine    after each but the last:                    %w.gradient.L = ... %w.gradient.1 + (%w.gradient.0 + %w.gradient)
//   total      after the last:                             %w.gradient   = ... %w.gradient.1 + (%w.gradient.0 + %w.gradient)
//   the rest   once:                                       clipping, optimizer, average on %w.gradient, running statistics
//
// Sums are a balanced binary tree over the shards: after shard i the value goes up one level for each 1 at the end of i, each time
// added to what waits there, which came before it. So level L holds the sum of 2^L neighbours, and where the number of shards is no
// power of two the levels that still wait are added from the lowest up. Whoever computes a part of 2^L shards that begins at a
// multiple of it computes a node of this tree, with its bits: so does a rank, whose shards are some of the batch's
// (passes/training/distribute.h).
//
// Running statistics follow the shards in their order, whoever computes them. Each shard leaves what it brings to a statistic,
// (1 - momentum) * %s + %brought, in a row of a state, and the rest of the step follows the rows. A statistic that shards also read
// is handed from each to the next instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/training/losses/shard_loss.h"

namespace gcomp::passes {

/// A scratch state that programs of a step share.
struct SharedState {
  std::string name;
  TensorType type;
};

/// What the shards of a rank bring to a statistic, one row each, and the rows of all ranks.
struct BroughtRows {
  SharedState own, all;  ///< the same state where there is one rank
};

struct Accumulation {
  std::optional<ir::Graph> count;
  ir::Graph shard;
  std::vector<ir::Graph> combine;  ///< by the number of ones at the end of the shard's number
  ir::Graph total;
  std::optional<ir::Graph> count_exchange, exchange = {};  ///< between ranks, where there are several: after `count`, after `total`
  std::vector<SharedState> counted, summed;                ///< what `count` and `total` leave
  std::vector<BroughtRows> brought;
  std::vector<std::string> handed;    ///< statistics that go from shard to shard
  std::vector<std::string> averaged;  ///< terms of the loss that are averaged over shards (ShardLoss)
  bool lock_step = false;             ///< a rank runs `shard` once, for all of its shards (passes/training/lock_step.h)
};

/// How many levels wait for more: bits of the last shard's number.
int tree_levels(std::int64_t shards);

/// From the graph that attach_shard_loss() gave, over so many shards of one rank; nothing where no count depends on data.
std::optional<ir::Graph> count_graph(const ir::Graph& graph, const ShardLoss& loss, std::int64_t shards);

/// What adds up over shards, first their values of one shard, then the states that hold the totals.
struct Accumulated {
  ir::Value* loss = nullptr;
  std::vector<ir::Value*> gradients;
};

struct AccumulateOptions {
  std::int64_t shards = 1;  ///< of a batch
  std::int64_t ranks = 1;   ///< which divide them
  bool skipped = false;     ///< whether a step may change nothing (skip_non_finite())
};

/// To be called once the graph is differentiated. Random numbers of shard i are those of its rows in the whole batch; counters
/// count steps. What only shards need stays in the graph, dead. Throws UserError where shards run in lock step and a statistic goes
/// from one to the next.
Accumulation accumulate(ir::Graph& graph, const std::vector<ir::Value*>& parameters, Accumulated& values,
                        const AccumulateOptions& options);

}  // namespace gcomp::passes
