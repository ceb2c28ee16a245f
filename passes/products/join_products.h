// A sum of products over rows becomes one product over all the rows.
//
//   %p = matmul %a, %b {transpose_a=true}         ->    %ac = concat %a, %c {axis=0}   %bd = concat %b, %d {axis=0}
//   %q = matmul %c, %d {transpose_a=true}               %y = matmul %ac, %bd {transpose_a=true}
//   %y = add %p, %q
//
// Such is the gradient of a recurrent weight: one product and one addition for each step of the sequence. What the products read is
// mostly there as one value already, since the layers below and above read all steps at once, and is then read from it: the gates'
// gradients of all steps as they are, the states before each step as the concatenated states but the last.
//
// Rows are put together where that moves fewer elements than the products' results are, which the sum no longer reads. The sum is
// in another order, and in 16 bits it is rounded once and not at each addition.
#pragma once

#include "ir/graph.h"

namespace gcomp::passes {

/// Needs a graph of primitive ops in which transposes stand in their products. True if any were joined.
bool join_products(ir::Graph& graph);

}  // namespace gcomp::passes
