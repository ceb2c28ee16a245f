// Convolutions in 16 bits get images whose pixels a GPU reads in whole vectors of 16 bytes.
//
// A photograph has three channels, and no kernel of a library's for tensor cores reads pixels of six bytes: cuDNN took 1.79 ms for
// the first convolution of ResNet-50 over 256 images in bf16 on an H200 and 1.13 ms for its weight gradient. The channels are
// filled up with zeros, in the image and in the weight, which change no sum, and what they add to a result is cut off again:
//
//   %y = convolution %x, %w : bf16[256,112,112,64]    ->     %p = pad %x {high=[0,0,0,5]} : bf16[256,224,224,8]
//                                                            %q = pad %w {high=[0,5,0,0]} : bf16[64,8,7,7]
//                                                            %y = convolution %p, %q
//
// The kernels that bring the image and the weight into their forms write the zeros too. Small convolutions are left alone, and
// those of several groups.
#pragma once

#include <cstdint>

#include "ir/target_info.h"

namespace gcomp::passes {

/// `min_work`: multiply-adds of a convolution that is worth it. Needs a graph of primitive ops whose convolutions are channels
/// last; nothing is done for a target that gains nothing (`half_row_elements`). True if anything was padded.
bool align_channels(ir::Graph& graph, const ir::TargetInfo& target, std::int64_t min_work = std::int64_t{1} << 28);

}  // namespace gcomp::passes
