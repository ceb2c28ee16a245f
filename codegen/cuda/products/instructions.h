// How many instructions the generated product and attention kernels take for each of a tensor core, from their machine code for
// sm_90. bench/gpu/sass.py counts two bounds, of the shortest way through a loop and of all but its slow path:
//   convolution, large tile    3.3 to 32.7 (weights' gradient 12.0), small tile 5.1 to 64 (13.1)
//   matmul, large tile         2.9 to 5.4, small tile 4.3 to 9.9
//   attention, width 64        forward 8.5 to 13.2, queries' gradient 5.1 to 12.4, keys' 7.7 to 14.0
//   over few keys, width 64    gradient 3.5 to 8.0, its loops in one; each is counted for itself below
//   the same in TF32           forward 8.2 to 9.5, queries' gradient 5.8 to 8.1, keys' 7.2 to 9.2
#pragma once

#include "ir/base/dtype.h"
#include "runtime/program.h"

namespace gcomp::codegen::cuda {

/// Of mma.m16n8k16, a warp's.
inline constexpr double kMmaFlops = 2.0 * 16 * 8 * 16;

inline bool uses_tensor_cores(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// For each tensor-core instruction of a convolution's kernel, whose large tile has 256 threads. To the matmul's most come 45 for
/// each vector that is gathered, whose tap is decoded and whose place is tested, by its text and not counted: two of them for 32 of
/// the large tile's and for 16 of the small one's.
inline double convolution_instructions(runtime::ConvolutionKind kind, int threads) {
  const bool is_large = threads >= 256;
  if (kind == runtime::ConvolutionKind::weight_gradient) return is_large ? 12.0 : 13.1;
  return is_large ? 8.2 : 15.5;
}

/// Rows and columns of a convolution's tile, and its step along k (products/tiling.cpp).
inline double convolution_tile(int threads) { return threads >= 256 ? 128 : 64; }
inline constexpr double kConvolutionStep = 32;

/// For each multiply-add of a convolution's FMA tile: loads from shared memory, and the gathering.
inline constexpr double kInstructionsAnFma = 1.6;

/// For each tensor-core instruction of attention's kernels, of which TF32 takes two where 16 bits take one: near the lower bound,
/// since the rest of the way is for the edges. `stalls` is how many times as long as its issue slots the kernel in bf16 took on an
/// H200 (bench/results): 1.87, 2.01, 2.05; 2.49, 2.68, 2.46; 2.67, 2.59, 2.60 in BERT, GPT-2 and ViT. In TF32 none was measured.
struct AttentionInstructions {
  double of_16_bits = 0, tf32 = 0, stalls = 1;
};
inline constexpr AttentionInstructions kAttentionForward{8.5, 8.2, 1.98}, kAttentionQueryGradient{5.1, 5.8, 2.54},
    kAttentionKeyGradient{7.7, 7.2, 2.62};

/// Of a warp of a gradient over few keys (attention/short_gradient.h), for its 32 keys and 32 queries; `width` is a multiple of 16.
/// Counted block by block in the machine code for sm_90 of widths 16, 32, 48 and 64: twice 111 and 23 for each 16 columns in the
/// loop over 16 queries without its edges; for dq 22 for each 16 columns, and 90 for each slice of 16, of which a block has one. Of
/// a tile's copies, delta and barrier, at width 64, some 230. 775 for 158 tensor-core instructions of ViT's, which took 2.88 times
/// as long as their issue slots on an H200 (290 us in its step, bench/results; 263 alone).
inline double short_gradient_instructions(double width, double warps) {
  constexpr double kStalls = 2.88;
  return kStalls * (2 * 111 + 230 + width / 16 * (2 * 23 + 22 + 90 / warps));
}

}  // namespace gcomp::codegen::cuda
