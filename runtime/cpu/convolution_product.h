// Convolutions of one tap in f32 and bf16, channels last, that move by one position: the product of a matrix of positions and one
// of weights.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

/// Whether a call is such a product, and one that is faster as a product than in the blocked kernels (runtime/README.md).
bool is_fastest_as_product(const ConvolutionCall& call);

/// The three kinds, for calls of which that is true.
std::unique_ptr<LibraryCall> make_convolution_product(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
