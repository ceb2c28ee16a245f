// The verifier. What it checks, for every graph:
//   * names are unique and not empty; every value knows its producer and position (law 1);
//   * operands and outputs are defined before they are used; only optional operands are absent (laws 1, 2, 4);
//   * an update writes a state, at most one for each, and no node uses a state after its update (law 3);
//   * result types are what inference gives from the operands and attributes (law 4);
//   * attributes are known to the op, complete, and none equals its default (law 5);
//   * kernels have a loop nest and nothing else has (law 6).
// And for every loop nest:
//   * at most 64 axes of extents >= 0; statements vary over ascending axes; a reduction combines over other axes, a scan runs
//     along one of its own; a map has neither; reductions over the same axes go through them in the same order;
//   * a term uses only axes that its statement loops over; a local is an earlier statement over no more axes than that;
//   * reads name an operand, with one index for each of its dimensions and its dtype; looked-up indices are integers;
//   * calls apply pointwise ops to the right number of terms, with the dtypes that the op's typing asks for, f16 and bf16
//     counting as the f32 they are computed in; the branches of a guard share a dtype;
//   * each output stores a statement of its dtype at one index for each dimension, over that statement's axes, inside the
//     result where the index is affine;
//   * a multi_kernel has one axis; its operands and results fall into equal segments of equal dtypes, each operand being a
//     scalar or as large as the segment's first result;
//   * a product has the form of ir/product.h.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

/// Each broken law in one line that names the node, in node order; empty for a sound graph.
std::vector<std::string> find_violations(const Graph& graph);
/// Of one nest, as a kernel from `operands` to `results`.
std::vector<std::string> find_violations(const LoopNest& nest, const std::vector<TensorType>& operands,
                                         const std::vector<TensorType>& results);

/// Throws InternalError that lists the broken laws: whoever changed the graph is wrong.
void verify(const Graph& graph);

}  // namespace gcomp::ir
