// Gradient accumulation: a training step in several programs over the same states. A batch is cut into shards of consecutive rows;
// `shard` runs once for each, in their order, and what it computes adds up in states of the role `scratch`, which hold nothing
// between steps. The graph that is left is what a step does once, on the totals.
//
//   count      for each shard, before the first of those:  what the loss is divided by, from the data alone (may be missing)
//   shard      for each shard:                             %w.gradient = the gradient of its share of the loss
//   combine    after each but the last:                    %w.gradient.L = ... %w.gradient.1 + (%w.gradient.0 + %w.gradient)
//   total      after the last of a node:                   %w.gradient   = ... %w.gradient.1 + (%w.gradient.0 + %w.gradient)
//   the rest   once:                                       clipping, optimizer, average on %w.gradient, running statistics
//
// Sums are a balanced binary tree over the shards: after shard i the value goes up one level for each 1 at the end of i, each time
// added to what waits there, which came before it. So level L holds the sum of 2^L neighbours, and where the number of shards is no
// power of two the levels that still wait are added from the lowest up. Whoever computes a part of 2^L shards that begins at a
// multiple of it computes a node of this tree, with its bits: so does a rank, whose shards are some of the batch's. Where a rank's
// number of shards is no power of two they are several nodes, each with a total of its own (passes/training/distribute.h).
//
// Running statistics follow the shards in their order, whoever computes them. Each shard leaves what it brings to a statistic,
// (1 - momentum) * %s + %brought, in a row of a state, and the rest of the step follows the rows. A statistic that shards also read
// is handed from each to the next instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/tree_sum.h"
#include "passes/training/losses/shard_loss.h"
#include "passes/training/sharded_state.h"

namespace gcomp::passes {

/// A scratch state that programs of a step share.
struct SharedState {
  std::string name;
  TensorType type;
};

/// What the shards of a rank bring, one row each, and the rows of all ranks, or the sum of these.
struct BroughtRows {
  SharedState own, all;  ///< the same state where there is one rank
};

/// The state that holds the sum over a rank's node of that number: the last one's is the state itself.
std::string node_state_name(std::string_view state, std::int64_t node, std::int64_t nodes);

struct Accumulation {
  std::optional<ir::Graph> count;
  ir::Graph shard;
  std::vector<ir::Graph> combine;  ///< by the number of ones at the end of the shard's number
  std::vector<ir::Graph> totals;   ///< one for each of the rank's nodes, but for the last where split_last_total() took it
  ir::OwnNodes nodes = {};         ///< those of the rank
  /// Between ranks, where there are several: after `count`, after the last total, after the rest. Exchanges of gradients come in
  /// the order in which a backward pass ends with them, then that of what else adds up; gathers in the order in which a forward
  /// pass begins with the parameters.
  std::optional<ir::Graph> count_exchange = {};
  std::vector<ir::Graph> exchanges = {}, gathers = {};
  std::vector<ir::Graph> bucket_totals = {};  ///< before the exchange of the same number: what adds up the last node for it
  std::vector<BroughtRows> counted;           ///< what `count` leaves, where there are several ranks
  std::vector<SharedState> summed;            ///< what the totals leave
  std::vector<BroughtRows> brought;
  std::vector<ShardedState> sharded;  ///< states of which each rank holds its share
  std::vector<std::string> handed;    ///< statistics that go from shard to shard
  std::vector<std::string> averaged;  ///< terms of the loss that are averaged over shards (ShardLoss)
  bool lock_step = false;             ///< a rank runs `shard` once, for all of its shards (passes/training/lock_step.h)
};

struct AccumulateOptions {
  std::int64_t shards = 1;  ///< of a batch
  std::int64_t ranks = 1;   ///< which divide them
  bool skipped = false;     ///< whether a step may change nothing (skip_non_finite())
  bool in_turns = false;    ///< takes_turns(): a rank's shards are no neighbours
};

struct CountGraph {
  ir::Graph graph;
  std::vector<BroughtRows> counted;
};
/// From the graph that attach_shard_loss() gave; nothing where no count depends on data. One rank adds counts up by the tree,
/// several keep a row of each shard.
std::optional<CountGraph> count_graph(const ir::Graph& graph, const ShardLoss& loss, const AccumulateOptions& options);

/// What adds up over shards, first their values of one shard, then the states that hold the totals.
struct Accumulated {
  ir::Value* loss = nullptr;
  std::vector<ir::Value*> gradients;
};

/// To be called once the graph is differentiated. Random numbers of shard i are those of its rows in the whole batch; counters
/// count steps. What only shards need stays in the graph, dead. Throws UserError where shards run in lock step and a statistic goes
/// from one to the next.
Accumulation accumulate(ir::Graph& graph, const std::vector<ir::Value*>& parameters, Accumulated& values,
                        const AccumulateOptions& options);

/// Makes `combine` and `totals` anew, for these states and a rank's nodes of the tree.
void add_up_shards(Accumulation& accumulation, const std::vector<SharedState>& sums, const ir::OwnNodes& nodes);

/// The total of the last node becomes one for each bucket of sums, so that each can go out when its own are there; none where nodes
/// are single shards, whose sums are there already.
void split_last_total(Accumulation& accumulation, const std::vector<std::vector<SharedState>>& buckets);

}  // namespace gcomp::passes
