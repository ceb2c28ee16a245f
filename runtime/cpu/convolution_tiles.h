// The arithmetic of the blocked convolution (convolution_blocked.cpp), channels last: what is compiled once per instruction set.
// A "position" is a pixel of the result, a "tap" one of the kernel's weights' places. Offsets and strides are in elements.
#pragma once

#include <stdint.h>

#include "runtime/cpu/winograd_tiles.h"

// Declared here, not included: no inline function may come into the files that are compiled for newer processors (gemm_kernel.h).
namespace gcomp {
enum class InstructionSet : uint8_t;
}

namespace gcomp::runtime::cpu {

/// Positions and outputs of a tile, at most.
inline constexpr int64_t kMostTileRows = 8, kMostTileWidth = 32;

/// target[p, o] (+)= sum over taps t and channels c of input[p, t, c] * weight[t, c, o].
struct ConvolutionBlock {
  int64_t positions = 0, taps = 0, channels = 0, outputs = 0;
  const int64_t* sources = nullptr;      ///< [position]: from `input` to the first channel that the first tap reads
  const int64_t* targets = nullptr;      ///< [position]: from `target` to the first output
  const int64_t* tap_offsets = nullptr;  ///< [tap]: from what the first tap reads to what this one does
  const int64_t* tap_numbers = nullptr;  ///< [tap]: its place among those of a panel
  const void* input = nullptr;
  const void* weights = nullptr;  ///< panels of `width` outputs, zeros behind the last: [panel][place][channel][width]
  int64_t panel_stride = 0, tap_stride = 0;
  void* target = nullptr;
  bool add = false;
};

/// Positions one after the other that a tap reads: where the first begins in the packed input, and in a panel of the packed
/// gradient.
struct TapRun {
  int32_t input = 0, gradient = 0, count = 0;
};

/// sums[c, t, o] (+)= sum over the positions of the runs of tap t of input[position, c] * gradient[position, o], for the channels
/// of some tiles.
struct WeightGradientBlock {
  int64_t positions = 0, taps = 0, tiles = 0, outputs = 0;
  const int64_t* tile_channels = nullptr;  ///< [tiles + 1]: the first channel of each, and behind the last
  int64_t rows_read = 0;
  const int64_t* row_offsets = nullptr;  ///< [rows_read]: from `input` to channel 0
  const TapRun* runs = nullptr;          ///< [tap][positions], of which the first run_counts[tap] count
  const int64_t* run_counts = nullptr;
  int64_t input_step = 0;  ///< from a packed row of a run to the next
  const void* input = nullptr;
  const void* gradient = nullptr;   ///< [position, output]
  int64_t gradient_stride = 0;      ///< from a position to the next
  void* sums = nullptr;             ///< [tile][panel][tap][rows][width], zeros behind the last output
  int64_t sums_stride = 0;          ///< from a tile of channels to the next
  void* packed_gradient = nullptr;  ///< for [panel][positions][width]
  void* packed_input = nullptr;     ///< for [rows_read][rows of a tile]
  bool add = false;
};

/// For f32.
struct ConvolutionFunctions {
  int64_t rows = 0;             ///< positions of a tile
  int64_t width = 0;            ///< outputs of a panel
  bool before_library = false;  ///< measured to be faster than oneDNN's kernels for these instructions
  void (*convolve)(const ConvolutionBlock& block) = nullptr;
  void (*add_weight_gradient)(const WeightGradientBlock& block) = nullptr;
  WinogradFunctions winograd;
};

/// The ones of f32 for an instruction set that the processor has.
const ConvolutionFunctions& convolution_functions(InstructionSet set);
/// The ones for the widest that it has.
const ConvolutionFunctions& convolution_functions();

}  // namespace gcomp::runtime::cpu
