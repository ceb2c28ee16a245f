// Convolutions of f16 and bf16, whose sums are f32 and are rounded once.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

/// bf16 as a product of matrices where it is one, in pairs of channels where sums_pairs() says so; all else by way of f32.
std::unique_ptr<LibraryCall> make_half_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
