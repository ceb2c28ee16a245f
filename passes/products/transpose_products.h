// A product that is only read transposed is computed transposed, by the same library call with its operands in the other order.
//
//   %p = matmul %x, %dy {transpose_a=true}    ->    %y = matmul %dy, %x {transpose_a=true}
//   %y = transpose %p {permutation=[1,0]}
//
// Such are the weight gradients of a linear layer whose file keeps the weight as PyTorch has it, [out, in], and transposes it
// before each product: the optimizer reads gradients from memory, so that each took a copy. The order of sums stays.
#pragma once

#include "ir/graph.h"

namespace gcomp::passes {

/// Needs a graph of primitive ops before fuse_bias_gradients. True if any was.
bool transpose_products(ir::Graph& graph);

}  // namespace gcomp::passes
