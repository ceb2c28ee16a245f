// Convolutions of bf16, channels last, by tiles (amx.h): the source is gathered, a line of channels for each position and tap,
// zeros where it reads padding, so that each kind is a product of matrices. Sums go over taps in the grid's order and the channels
// of each in steps of kTileDepth, in gradients of weights over positions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/cpu/amx.h"
#include "runtime/cpu/convolution.h"
#include "runtime/cpu/convolution_grid.h"

namespace gcomp::runtime::cpu {

/// The three kinds, for calls of which takes_tiles is true, where backend.tiles is there.
std::unique_ptr<LibraryCall> make_tile_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);
std::unique_ptr<LibraryCall> make_tile_weight_gradient(const ConvolutionCall& call, const ConvolutionOperands& operands);

/// Below so many channels all taps of a position make one line, of [tap][channel].
inline constexpr std::int64_t kFewTileChannels = 32;
bool gathers_lines(const ConvolutionShape& shape, ConvolutionKind kind);

/// Which of a panel's columns stands at a place of the sums where gather_b made the panel.
constexpr std::int64_t gathered_column(std::int64_t place) {
  const std::int64_t tile = place / kTileLines, at = place % kTileLines;
  return at / 4 * 8 + tile * 4 + at % 4;
}

/// Where the taps of a grid's positions read.
class TapLines {
 public:
  TapLines(const TapGrid& grid, const PositionedChannels& source);

  std::int64_t taps() const { return static_cast<std::int64_t>(tap_offsets_.size()); }
  /// From a position's offset to what a tap reads, in elements.
  std::int64_t tap_offset(std::int64_t tap) const { return tap_offsets_[static_cast<std::size_t>(tap)]; }
  /// Of `count` positions from `first` on, those of all images one after the other: offsets of what they read at tap offset 0, and
  /// bits of the taps that read within the source. Of those from `count` to before `padded`, no tap does.
  void find(std::int64_t first, std::int64_t count, std::int64_t padded, std::int64_t* offsets, std::uint64_t* masks) const;

 private:
  const TapGrid& grid_;
  PositionedChannels source_;
  std::vector<std::int64_t> tap_offsets_;
  std::array<std::vector<std::uint64_t>, 3> inside_;  // for each position along a dimension, the taps that read within it
};

}  // namespace gcomp::runtime::cpu
