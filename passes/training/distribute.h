// A training step in shards becomes that of one rank: what the shards of each rank added up goes between them.
//
//   count, count_exchange, (shard, combine) for each of the rank's shards, total, exchange, the rest
//
// Of S shards rank r of N computes those from r S/N on, a node of the tree that all shards are added by, where S/N is a power of
// two (passes/training/accumulate.h). The ranks' nodes are added by what is left of that tree (ir/tree_sum.h), so that the number
// of ranks changes no bit: each gets a piece of every rank's sums, adds the pieces, and gives the result to all.
//
//   %g      = bucket %w0.gradient, %w1.gradient, ... {rows=N}
//   %piece  = reduce_scatter %g {ranks=N}
//   %all    = all_gather %piece {ranks=N}
//   %t0, %t1, ... = unbucket %all            update %w0.gradient, %t0  ...
//
// This is the one place that knows how many ranks there are.
#pragma once

#include <cstdint>

#include "passes/training/accumulate.h"

namespace gcomp::passes {

struct DistributeOptions {
  std::int64_t ranks = 1;
  /// Arrays go in buckets of about so many bytes, one that is larger by itself: few exchanges, and little memory for them.
  std::int64_t bucket_bytes = std::int64_t{32} << 20;
};

/// Throws UserError (exit 2) where the ranks do not divide the shards into equal nodes of the tree, naming numbers that do.
void require_ranks(std::int64_t shards, std::int64_t ranks);

/// Adds the exchanges to what accumulate() made for so many ranks. Throws UserError where a running statistic goes from shard to
/// shard.
void distribute(Accumulation& accumulation, const DistributeOptions& options);

}  // namespace gcomp::passes
