// A training step in shards becomes that of one rank: what the shards of each rank added up goes between them.
//
//   count, count_exchange, (shard, combine or total) for each of the rank's shards, exchange, the rest, gather
//
// Of S shards rank r of N computes those from r S/N on: a node of the tree that all shards are added by, where S/N is a power of
// two, else several (own_nodes(), passes/training/accumulate.h). The ranks' nodes are added by what is left of that tree
// (ir/tree_sum.h), so that the number of ranks changes no bit: each gets a piece of every rank's sums and adds the pieces.
//
//   %g      = bucket %w0.gradient, %w1.gradient, ... {parts=S/N, rows=N}
//   %sum    = reduce_scatter %g {ranks=N}
//   %t0, %t1, ... = unbucket %sum            update %w0.gradient.own, %t0  ...      the rest then updates shares (share_updates.h)
//
//   %p      = bucket %w0.own, %w1.own, ... {rows=1}                                 gather: the new parameters, for all
//   %all    = all_gather %p {ranks=N}
//   %v0, %v1, ... = unbucket %all {parts=S/N}            update %w0, %v0  ...
//
// What every rank needs whole (the loss, gradients of rules that look at whole tensors, all of them where nothing is sharded) is
// gathered right after it is summed. This is the one place that knows how many ranks there are.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/training/accumulate.h"

namespace gcomp::passes {

struct DistributeOptions {
  std::int64_t ranks = 1;
  std::int64_t shards = 1;  ///< which the ranks divide
  Sharding sharding = Sharding::optimizer;
  /// Arrays go in buckets of about so many bytes, one that is larger by itself: few exchanges, and little memory for them.
  std::int64_t bucket_bytes = std::int64_t{32} << 20;
};

/// Throws UserError (exit 2) where the ranks do not divide the shards, naming numbers that do, or not as the sharding wants it.
void require_ranks(std::int64_t shards, std::int64_t ranks, Sharding sharding = Sharding::optimizer);

/// `step` is the rest of the step, complete, and `parameters` those that it updates. With one rank nothing is added, and the
/// squares of norms are put into the order that several add them in. Throws UserError where a running statistic goes from shard to
/// shard.
void distribute(ir::Graph& step, Accumulation& accumulation, const std::vector<ir::Value*>& parameters,
                const DistributeOptions& options);

}  // namespace gcomp::passes
