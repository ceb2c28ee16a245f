// exp(x) of sums and differences of 16-bit values is one instruction, as those of `attention/mma_kit.h` are. It is off by 2^-22 of
// what x is made of, where rounding to 16 bits made that itself off by 2^-11 at the least.
#pragma once

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

void shorten_exponentials(FlatNest& nest);

}  // namespace gcomp::codegen::cuda
