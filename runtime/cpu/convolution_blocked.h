// f32 convolutions, channels last: the same bits for any instruction set and any number of threads. Sums run over blocks of
// channels, and the taps and channels within a block, in an order that follows from the shape alone.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

/// Whether the blocked kernels compute such a call.
bool takes_blocked(const ConvolutionCall& call);

/// The three kinds, for calls that are taken.
std::unique_ptr<LibraryCall> make_blocked_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);
std::unique_ptr<LibraryCall> make_blocked_weight_gradient(const ConvolutionCall& call, const ConvolutionOperands& operands);

/// Below so many input channels the taps are gathered into one row for each position, so that the inner loop is long enough.
inline constexpr std::int64_t kFewChannels = 16;

}  // namespace gcomp::runtime::cpu
