// A convolution, or the gradient of its input, cut by positions of the result into areas, whose positions all read by the same
// taps and nothing that is padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/cpu/convolution_grid.h"
#include "runtime/cpu/library_call.h"

namespace gcomp::runtime::cpu {

/// Positions [first, first + positions) of a piece of a grid, those of all images counted one after the other.
struct ConvolutionArea {
  std::size_t piece = 0;
  std::int64_t first = 0, positions = 0;
};

class ConvolutionAreas {
 public:
  /// What a tap is: a place of the kernel, or a line of places side by side, which are read as one run.
  enum class Taps : std::uint8_t { places, lines };

  ConvolutionAreas(const ConvolutionShape& shape, ConvolutionKind kind, Taps taps);

  const std::vector<TapGrid>& grids() const { return grids_; }
  const PositionedChannels& source() const { return source_; }
  const PositionedChannels& result() const { return result_; }
  /// As even as may be, of at most so many positions.
  std::vector<ConvolutionArea> cut(std::int64_t most) const;

  std::size_t grid_of(const ConvolutionArea& area) const { return pieces_[area.piece].grid; }
  /// How much of all positions of its piece precedes an area.
  double before(const ConvolutionArea& area) const;
  std::int64_t taps_of(const ConvolutionArea& area) const;
  /// Places of a tap that is a line, and how many of the kernel's precede them.
  std::int64_t line_places(const ConvolutionArea& area) const { return pieces_[area.piece].at.taps[2]; }
  std::int64_t line_begin(const ConvolutionArea& area) const { return pieces_[area.piece].at.first_tap[2]; }

  /// Offsets in elements: of the first channels that each position writes, and that its first tap reads; of each tap that is read,
  /// how far from the first it reads, and its number among the grid's. Where no tap is read, only targets count.
  struct Lists {
    std::int64_t *sources, *targets, *tap_offsets, *tap_numbers;
  };
  /// What those of an area of at most so many positions take.
  std::int64_t lists_bytes(std::int64_t most) const { return 2 * (aligned_size(most * 8) + aligned_size(most_taps_ * 8)); }
  /// Writes them to `scratch`, of lists_bytes(most).
  Lists find(const ConvolutionArea& area, std::int64_t most, std::byte* scratch) const;

 private:
  void find_targets(const ConvolutionArea& area, std::int64_t* targets) const;
  void find_sources(const ConvolutionArea& area, std::int64_t* sources) const;
  void find_taps(const ConvolutionArea& area, std::int64_t* offsets, std::int64_t* numbers) const;

  using Triple = ConvolutionShape::Triple;
  struct Piece {
    std::size_t grid;
    GridPiece at;
  };

  /// Where channels of an area's positions begin: those at start + i * step of each dimension.
  void find_positions(const PositionedChannels& channels, const Triple& start, const Triple& step, const ConvolutionArea& area,
                      std::int64_t* offsets) const;

  std::int64_t batch_;
  bool lines_;
  PositionedChannels source_, result_;
  std::vector<TapGrid> grids_;
  std::vector<Piece> pieces_;
  std::int64_t most_taps_ = 0;
};

}  // namespace gcomp::runtime::cpu
