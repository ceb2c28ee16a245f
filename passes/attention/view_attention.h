// Attention reads its matrices where they lie and writes its results where they are wanted, so that no kernel only moves them.
//
//   %x = ... : bf16[B*T, 3*H*D]                                        %x = ...
//   %s = reshape %x {shape=[B,T,3*H*D]}                                %y, ... = attention %x, %x, %x {sizes=[B,H,T,T,D,D],
//   %qs, %ks, %vs = slices of %s along its last axis          ->           q_view=[0,T*3*H*D,D,3*H*D,1], k_view=..., v_view=...,
//   %q, %k, %v = transposes of [B,T,H,D] to [B,H,T,D]                      y_view=[0,T*H*D,D,H*D,1]} : bf16[B*T*H*D]
//   %y, ... = attention %q, %k, %v : bf16[B,H,T,D]                     %r = reshape %y {shape=[B*T,H*D]}
//   %r = a reshape of %y's transpose to [B,T,H,D]
//
// Operands (dy too) are followed up through views of one operand, as far as their elements lie at a stride of their own for each
// dimension. Results are followed down through transposes and reshapes to the last order that one reader after the other gives
// them; dq, dk and dv that meet in a concat which nothing else joins become one result. Who reads a result in its former order is
// given a view of the new one.
//
// Left as they are: rows whose elements are not neighbours, steps backwards, a slice of what is computed element by element and not
// after a product (all of it would be stored for the sake of a part), a state that has been updated in between, results that a
// library or the caller reads as they are, or that two readers want in two orders.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace gcomp::passes {

/// For targets that take attention whole, before fusion. `whole` says of a node whether the target takes it; without it every one
/// is. True if any node was given a view.
bool view_attention(ir::Graph& graph, const std::function<bool(const ir::Node&)>& whole = {});

}  // namespace gcomp::passes
