// The arithmetic of the blocked convolution (convolution_blocked.cpp), channels last: what is compiled once per instruction set.
// A "position" is a pixel of the result, a "tap" one of the kernel's weights' places. Offsets and strides are in elements.
#pragma once

#include <stdint.h>

#include "runtime/cpu/depthwise_tiles.h"
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

/// Positions one after the other that a tap reads: where the first begins in a tile of the input, and in a panel of the packed
/// gradient.
struct TapRun {
  int32_t input = 0, gradient = 0, count = 0;
};

/// Some panels of outputs of some positions: rows of `width`, anything behind the last output.
struct GradientPanels {
  int64_t positions = 0, outputs = 0, panels = 0;  ///< outputs: from the first panel's first on
  const void* gradient = nullptr;                  ///< [position, output]
  int64_t gradient_stride = 0;                     ///< from a position to the next
  int64_t readable = 0;                            ///< elements from the first panel's first output of each position on
  void* packed = nullptr;                          ///< for [panel][position][width]
};

/// Some tiles of input channels of the rows that are read.
struct InputTiles {
  int64_t rows = 0, tiles = 0;
  const int64_t* row_offsets = nullptr;  ///< [rows]: from `input` to channel 0
  const int64_t* channels = nullptr;     ///< [tiles + 1]: the first channel of each, and behind the last
  bool last = false;                     ///< nothing may be read behind the last channel
  const void* input = nullptr;
  void* packed = nullptr;  ///< for [tile][row][rows of a tile]
  int64_t tile_stride = 0;
  int64_t pair_step = 1;  ///< rows from one to that which follows it in a run, with which it is a pair
};

/// sums[t, c, o] (+)= sum over the positions of the runs of tap t of input[position, c] * gradient[position, o], for a tile of
/// channels and a panel of outputs.
struct WeightGradientTile {
  int64_t taps = 0, channels = 0, outputs = 0;
  const TapRun* runs = nullptr;  ///< [tap][run_stride], of which the first run_counts[tap] count
  int64_t run_stride = 0;
  const int64_t* run_counts = nullptr;
  const void* input = nullptr;
  int64_t input_step = 0;  ///< from a row of a run to the next
  const void* gradient = nullptr;
  void* sums = nullptr;  ///< [tap][rows of a tile][width]
  bool add = false;
};

struct ConvolutionFunctions {
  int64_t rows = 0;      ///< positions of a tile
  int64_t width = 0;     ///< outputs of a panel
  int64_t elements = 1;  ///< of the dtype in what counts as a channel: 2 where f32's place holds a pair of bf16
  void (*convolve)(const ConvolutionBlock& block) = nullptr;
  void (*pack_gradient)(const GradientPanels& panels) = nullptr;
  void (*pack_input)(const InputTiles& tiles) = nullptr;
  void (*multiply_weight_gradient)(const WeightGradientTile& tile) = nullptr;
  DepthwiseFunctions depthwise;
  WinogradFunctions winograd;
};

/// The ones of f32 for an instruction set that the processor has.
const ConvolutionFunctions& convolution_functions(InstructionSet set);
/// Those of bf16, but for depthwise and Winograd's. Sums are those of GemmFunctions::bf16: `convolve` over the channels of a tap,
/// multiply_weight_gradient over the positions of a run. With pairs, convolve reads and sums them as channels, and what packs
/// activations reads bf16.
const ConvolutionFunctions& bf16_convolution_functions(InstructionSet set);
/// The ones for the widest that it has.
const ConvolutionFunctions& convolution_functions();

}  // namespace gcomp::runtime::cpu
