// Softmax without a division an element: exp(x) / s, with one s for a row, becomes exp(x) * (1 / s). It differs from the quotient
// by one unit in the last place at most, and overflows where the quotient does: a sum of such terms is no subnormal number.
#pragma once

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

/// Rewrites quotients in f32 whose divisor does not vary along `axis`.
void multiply_by_reciprocals(FlatNest& nest, int axis);

}  // namespace gcomp::codegen::cuda
