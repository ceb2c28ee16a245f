// Shards that know of each other: a program that runs those of one process in lock step.
//
// Where batch normalisation takes the statistics of the whole batch, no shard can go on before all have come to them, so that they
// cannot run one after another. The graph of one shard says so by ops between shards (ir/ops/lock_step.h). Once it is lowered to
// kernels this pass copies it for each of the K shards that share a process, and the ops become what moves their values:
//
//   %m = shard_gather %s {ranks=S, lock_step=K}     ->   %r = kernel %s, %s.1, ... { row j is the operand of copy j }
//                                                         %m = all_gather %r {ranks=S/K}, as [S, ...]; %r itself where K = S
//   %t = lock_step_sum %g {ranks=S, lock_step=K}    ->   %t = kernel %g, %g.1, ... { the tree of ir/tree_sum.h }
//
// Inputs have K times the rows, of which each copy gets its own. What depends on no shard is there once. A state that the shard
// both reads and writes goes from copy to copy, in their order.
//
// It is done on kernels so that their number changes no bit: a kernel is what it is in a process of one shard, whatever K is, as
// are the library calls, and what this pass adds moves bytes, or adds what lies in memory already. Copied before fusion, kernels
// would be fused with the sums, and a compiler that contracts a product and a sum would round otherwise.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace gcomp::passes {

/// Whether the shards of this graph know of each other: an op of it is between them.
bool in_lock_step(const ir::Graph& graph);

/// Whether the value is the same on all shards: made of parameters, constants and what is gathered of all.
bool is_of_all_shards(const ir::Graph& graph, const ir::Value* value);

/// Of a graph of kernels. True where shards knew of each other. Throws InternalError where a copy would
/// need what it makes itself, by way of the others.
bool lock_step(ir::Graph& graph);

}  // namespace gcomp::passes
