// Products in f16 and bf16 that a target computes in f32: the operands are widened, the result is rounded back.
//
//   %y = matmul %a, %b : bf16[8,4]      ->      %0 = cast %a {to=f32}   %1 = cast %b {to=f32}
//                                               %2 = matmul %0, %1 : f32[8,4]
//                                               %y = cast %2 {to=bf16} : bf16[8,4]
//
// The meaning stays: 16-bit products accumulate in f32 and are rounded once, so only the order of the sum may differ. The casts
// fuse into what makes and reads the values.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace gcomp::passes {

/// Those of 16 bits for which `widens` is true. True if anything changed.
bool widen_contractions(ir::Graph& graph, const std::function<bool(const ir::Node&)>& widens);

}  // namespace gcomp::passes
