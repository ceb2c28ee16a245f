// The arithmetic of convolutions whose groups have one channel each (convolution_depthwise.cpp), channels last: what is compiled
// once per instruction set. A vector holds channels side by side. Offsets and strides are in elements.
#pragma once

#include <stdint.h>

namespace gcomp::runtime::cpu {

/// Positions that read by the same taps, of `channels` channels that lie side by side.
struct DepthwiseBlock {
  int64_t positions = 0, taps = 0, channels = 0;
  const int64_t* sources = nullptr;      ///< [position]: from `input` to the first channel that the first tap reads
  const int64_t* targets = nullptr;      ///< [position]: from `target` to the first channel
  const int64_t* tap_offsets = nullptr;  ///< [tap]: from what the first tap reads to what this one does
  const int64_t* tap_numbers = nullptr;  ///< [tap]: its row among the weights
  const void* input = nullptr;
  void* weights = nullptr;    ///< [row][channel]; a weight gradient's sums
  int64_t weight_stride = 0;  ///< from a row to the next
  void* target = nullptr;     ///< the result; of a weight gradient what is read, the gradient of the output
};

/// For f32.
struct DepthwiseFunctions {
  /// target[p, c] = sum over taps t of input[p, t, c] * weights[t, c].
  void (*convolve)(const DepthwiseBlock& block) = nullptr;
  /// weights[t, c] += sum over positions p of target[p, c] * input[p, t, c].
  void (*add_weight_gradient)(const DepthwiseBlock& block) = nullptr;
};

}  // namespace gcomp::runtime::cpu
