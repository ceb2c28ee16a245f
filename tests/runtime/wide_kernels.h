// The kernels for AVX-512, with their tiles, compiled to AVX2 instructions: what follows from the shape of a tile and the number of
// lanes is tested on processors that have no AVX-512. Only for those that have AVX2 and FMA.
#pragma once

#include "runtime/cpu/amx.h"
#include "runtime/cpu/convolution_tiles.h"
#include "runtime/cpu/gemm.h"

namespace gcomp::runtime::cpu {

const GemmFunctions& wide_gemm_functions();
const ConvolutionFunctions& wide_convolution_functions();
const ConvolutionFunctions& wide_bf16_convolution_functions();
/// AMX's tiles as memory, their instruction by fused multiply-adds one by one.
const TileFunctions& tiles_in_memory();

}  // namespace gcomp::runtime::cpu
