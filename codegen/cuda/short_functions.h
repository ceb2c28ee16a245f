// Functions of sums and differences of 16-bit values, which rounding to 16 bits made off by 2^-11 at the least: exp(x) is one
// instruction, as those of `attention/mma_kit.h` are, and off by 2^-22 of what x is made of. 1 + erf(x), which GELU multiplies by,
// is ten for 25, none of which chooses between coefficients, and off by 2^-16 of itself.
#pragma once

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

void shorten_functions(FlatNest& nest);

}  // namespace gcomp::codegen::cuda
