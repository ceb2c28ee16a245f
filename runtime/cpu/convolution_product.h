// Convolutions of one tap in f32 and bf16, channels last, that move by one position: the product of a matrix of positions and one
// of weights.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

/// The three kinds, for calls of which is_matrix_product is true.
std::unique_ptr<LibraryCall> make_convolution_product(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
