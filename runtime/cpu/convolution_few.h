// Convolutions of few results, f32, channels last, that move by one position: the last layer of a decoder, and the gradient of an
// image. Tiles whose columns are results would be empty for the most part. Here the columns are taps and results: every source
// position is multiplied by all of them at once, and what taps make of their positions is added up afterwards, line by line.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

/// Whether it is such a call: at most four results, or of a weight's gradient outputs, of 32 channels or more, several taps over
/// one or two dimensions, one group.
bool takes_few_results(const ConvolutionCall& call);

/// The three kinds, for calls that are taken. A sum goes over the channels of a tap as a product's does (gemm.h), then over taps in
/// the grid's order; a weight's gradient over the positions of some lines, then over these, in parts that the shape decides.
std::unique_ptr<LibraryCall> make_few_results_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
