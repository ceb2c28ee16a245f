// Slices move before what computes elements that they drop.
//
//   %n = layer_norm %x ...  : f32[32,512,768]            %s = slice %x {sizes=[32,1,768]}
//   %y = slice %n {sizes=[32,1,768]}             ->      %y = layer_norm %s ... : f32[32,1,768]
//
// Of a transformer that reads its class from the first position, the last block computes that position alone but for its keys and
// values; the gradients of the others are zeros that nobody computes either.
#pragma once

#include "ir/graph.h"

namespace gcomp::passes {

/// What all readers of a value slice alike, and at most half of it, is computed for those elements only, as far back as an op makes
/// a box of its result of boxes of its operands (OpDef::boxed): pointwise ops, views, reductions along other axes, products, norms,
/// softmax, running sums, and attention without dropout (under the causal mask for the last query alone). Whatever else reads the
/// value, or is an output, keeps it whole. Random numbers stay those of the whole. Needs a graph without kernels and views of
/// matrices. True if anything moved.
bool hoist_slices(ir::Graph& graph);

}  // namespace gcomp::passes
