// Exchanges within the program of a shard, for ranks that hold shares of gradients (ZeRO, stage 2) and of parameters (stage 3).
//
//   update %w.gradient, %g            %b = bucket %g, ... {parts=S/N, rows=N}
//                                     %s = reduce_scatter %b {ranks=N}
//                                     %o = unbucket (reshape %s)                   update %w.gradient.own, %o
//
//   state %w: f32[784,128]            state %w.own: f32[share]
//   ... %w ...                        %a = all_gather (bucket %w.own, ...) {ranks=N}
//                                     %w = unbucket (reshape %a) {parts=S/N}       ... %w ...
//
// A gradient is given away where it has come to be, and a bucket of parameters is gathered where a forward pass first reads one,
// and once more for the backward pass: `order` then finds when. Each run of the program has one shard of each rank, whose sum is a
// node of the tree that all shards are added by: rank r of N has the shards r, N + r, 2 N + r, ...
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "passes/training/state_buckets.h"

namespace gcomp::passes {

struct ShardExchange {
  std::int64_t ranks = 1, parts = 1;  ///< parts of a share
  std::int64_t bucket_bytes = std::int64_t{32} << 20;
};

/// `shared`: sums of which a rank keeps its share; `whole`: those that every rank keeps. Both were updates of the graph.
void exchange_gradients(ir::Graph& shard, const ShardedList& shared, const StateList& whole, const ShardExchange& options);

/// The graph reads these parameters as gathered shares: once for all up to the node that makes `loss`, once for all behind it.
void gather_parameters(ir::Graph& shard, const ShardedList& parameters, const ir::Value* loss, const ShardExchange& options);

}  // namespace gcomp::passes
