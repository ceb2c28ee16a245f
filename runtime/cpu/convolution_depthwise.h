// f32 convolutions whose groups have one input and one output channel each, channels last: vectors of channels, no padding is
// multiplied, the same bits for any instruction set and any number of threads.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

bool takes_depthwise(const ConvolutionCall& call);

/// The three kinds, for calls that are taken.
std::unique_ptr<LibraryCall> make_depthwise_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
