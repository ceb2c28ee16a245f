// Attention and matrix products read their matrices where they lie and write their results where they are wanted, so that no kernel
// only moves them.
//
//   %x = ... : bf16[B*T, 3*H*D]                                   %x = ...
//   %s = reshape %x {shape=[B,T,3*H*D]}                           %y, ... = attention %x, %x, %x {operand_views=[
//   %qs, %ks, %vs = slices of %s along its last axis       ->         (B,H,T,D):(T*3*H*D,D,3*H*D,1), ...+H*D, ...+2*H*D],
//   %q, %k, %v = transposes of [B,T,H,D] to [B,H,T,D]                 result_views=[(B,H,T,D):(T*H*D,D,H*D,1)]} : bf16[B*T*H*D]
//   %y, ... = attention %q, %k, %v : bf16[B,H,T,D]                %r = reshape %y {shape=[B*T,H*D]}
//   %r = a reshape of %y's transpose to [B,T,H,D]
//
// Operands are followed up through views of one value, as far as their elements lie at a stride of their own for each dimension.
// Results are followed down through transposes and reshapes to the last order that one reader after the other gives them; dq, dk
// and dv that meet in a concat which nothing else joins become one result. Who reads a result in its former order is given a view
// of the new one.
//
// Left as they are: steps backwards, a state that has been updated in between, results that a library or the caller reads as they
// are, or that two readers want in two orders. Attention takes no rows whose elements are not neighbours, and no slice of what is
// computed element by element and not after a product (all of it would be stored for the sake of a part). A product is given a view
// only of what is in memory in any case, only where the copy is then read by nothing, and only where the target says that its
// libraries are as fast with it (ir::TargetInfo::takes_view).
#pragma once

#include "ir/graph.h"
#include "ir/target_info.h"

namespace gcomp::passes {

/// Before fusion. True if any node was given a view.
bool view_operands(ir::Graph& graph, const ir::TargetInfo& target);

}  // namespace gcomp::passes
