// The interpreter's way through a loop nest: every statement at every point, in double.
#pragma once

#include <span>
#include <vector>

#include "ir/base/tensor.h"
#include "ir/nest/loops.h"

namespace gcomp::ir {

/// The nest's outputs, of `types`, from its operands (null where absent). Results of statements are kept whole, in double, over the
/// statement's own axes, and rounded to its dtype. Throws UserError where a loaded index is out of range, InternalError where the
/// nest reads beside an operand.
std::vector<Tensor> evaluate_nest(const LoopNest& nest, const std::vector<const Tensor*>& operands,
                                  std::span<const TensorType> types);

}  // namespace gcomp::ir
