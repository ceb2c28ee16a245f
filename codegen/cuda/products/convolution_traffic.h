// What the generated kernels of a convolution ask of a device, beside the bytes and flops that any convolution needs.
#pragma once

#include <vector>

#include "codegen/traffic.h"
#include "runtime/program.h"

namespace gcomp::codegen::cuda {

/// Of each launch of `generated`, which computes `call`: `flops` in all, divided as the blocks are. With `tf32` it rounds f32.
std::vector<Traffic> convolution_traffic(const runtime::ConvolutionCall& call, const runtime::GeneratedProduct& generated,
                                         double flops, bool tf32);

}  // namespace gcomp::codegen::cuda
