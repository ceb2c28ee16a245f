// Which position of one activation each tap of a convolution reads for each position of the other one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/cpu/convolution_shape.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

/// A weight's place in the kernel, and what is read there: position i of the grid reads i * scale + offset.
struct Tap {
  std::int64_t weight = 0;  ///< index among the kernel's places
  ConvolutionShape::Triple offset{};
};

/// Result positions that read by the same taps: start + i * step for i below `count`. A convolution has one such grid; the
/// gradient of its input one for each remainder by the strides, so that no tap falls between source positions.
struct TapGrid {
  /// Of one dimension, in the order of the kernel's places: the offsets rise or fall.
  using Offsets = std::vector<std::int64_t>;

  ConvolutionShape::Triple start{}, step{1, 1, 1}, count{}, scale{1, 1, 1};
  std::array<Offsets, 3> along;
  std::vector<Tap> taps;  ///< all combinations of these

  std::int64_t positions() const { return count[0] * count[1] * count[2]; }
};

/// Positions of a grid, [first, first + count), whose taps read nothing but padding or no padding: the latter are
/// [first_tap, first_tap + taps) along each dimension.
struct GridPiece {
  ConvolutionShape::Triple first{}, count{}, first_tap{}, taps{};

  std::int64_t positions() const { return count[0] * count[1] * count[2]; }
  std::int64_t all_taps() const { return taps[0] * taps[1] * taps[2]; }
};

/// The pieces that make up a grid, whose taps read a source of such an extent.
std::vector<GridPiece> pieces_of(const TapGrid& grid, const ConvolutionShape::Triple& source);

/// `input_gradient` reads the gradient of the output; the other two kinds read the input, for the positions of the output.
std::vector<TapGrid> tap_grids(const ConvolutionShape& shape, ConvolutionKind kind);

/// An activation as it lies, channels last.
struct PositionedChannels {
  ConvolutionShape::Triple extent{};
  std::int64_t channels = 0;

  std::int64_t offset(std::int64_t image, std::int64_t depth, std::int64_t height, std::int64_t width) const {
    return (((image * extent[0] + depth) * extent[1] + height) * extent[2] + width) * channels;
  }
};

/// Neighbours along the width, of one line of one image.
struct PositionRun {
  std::int64_t image = 0, depth = 0, height = 0, width = 0;  ///< of the first
  std::int64_t index = 0, count = 0;                         ///< of the first among those that are walked
};

/// Calls visit(run) for positions [first, first + count) of all images, each of such an extent, in order.
template <class Visit>
void walk_positions(const ConvolutionShape::Triple& extent, std::int64_t first, std::int64_t count, Visit visit) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = first + done, line = at / extent[2];
    PositionRun run{line / (extent[0] * extent[1]), line / extent[1] % extent[0], line % extent[1], at % extent[2], done, 0};
    run.count = std::min(extent[2] - run.width, count - done);
    visit(run);
    done += run.count;
  }
}

/// Of a run, those for which a tap reads within the source: neighbours, the first of which reads `position` of all images.
struct TapReads {
  std::int64_t first = 0, count = 0, position = 0;
};

inline TapReads reads_of(const TapGrid& grid, const Tap& tap, const PositionedChannels& source, const PositionRun& run) {
  const std::int64_t d = run.depth * grid.scale[0] + tap.offset[0], h = run.height * grid.scale[1] + tap.offset[1];
  if (d < 0 || d >= source.extent[0] || h < 0 || h >= source.extent[1]) return {};
  const std::int64_t scale = grid.scale[2], start = run.width * scale + tap.offset[2];
  const std::int64_t first = start < 0 ? (scale - 1 - start) / scale : 0;
  const std::int64_t end = start < source.extent[2] ? std::min(run.count, (source.extent[2] - start + scale - 1) / scale) : 0;
  if (first >= end) return {};
  const std::int64_t line = (run.image * source.extent[0] + d) * source.extent[1] + h;
  return {first, end - first, line * source.extent[2] + start + first * scale};
}

}  // namespace gcomp::runtime::cpu
