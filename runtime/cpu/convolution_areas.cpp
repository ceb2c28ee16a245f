#include "runtime/cpu/convolution_areas.h"

#include <algorithm>
#include <utility>

#include "ir/base/integers.h"

namespace gcomp::runtime::cpu {
namespace {

std::int64_t offset_of(const TapGrid& grid, std::size_t dimension, std::int64_t tap) {
  return grid.along[dimension][static_cast<std::size_t>(tap)];
}

}  // namespace

ConvolutionAreas::ConvolutionAreas(const ConvolutionShape& shape, ConvolutionKind kind, Taps taps)
    : batch_(shape.batch), lines_(taps == Taps::lines), grids_(tap_grids(shape, kind)) {
  source_ = {shape.input, shape.groups * shape.group_inputs};
  result_ = {shape.output, shape.groups * shape.group_outputs};
  if (kind == ConvolutionKind::input_gradient) std::swap(source_, result_);
  for (std::size_t g = 0; g < grids_.size(); ++g)
    for (const GridPiece& piece : pieces_of(grids_[g], source_.extent)) {
      pieces_.push_back({g, piece});
      most_taps_ = std::max(most_taps_, piece.all_taps());
    }
}

ConvolutionAreas::Lists ConvolutionAreas::find(const ConvolutionArea& area, std::int64_t most, std::byte* scratch) const {
  const auto take = [&](std::int64_t elements) {
    return reinterpret_cast<std::int64_t*>(std::exchange(scratch, scratch + aligned_size(elements * 8)));
  };
  const Lists lists{.sources = take(most), .targets = take(most), .tap_offsets = take(most_taps_), .tap_numbers = take(most_taps_)};
  find_targets(area, lists.targets);
  if (taps_of(area) == 0) {
    std::fill_n(lists.sources, area.positions, 0);
    return lists;
  }
  find_sources(area, lists.sources);
  find_taps(area, lists.tap_offsets, lists.tap_numbers);
  return lists;
}

std::vector<ConvolutionArea> ConvolutionAreas::cut(std::int64_t most) const {
  std::vector<ConvolutionArea> areas;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const std::int64_t positions = batch_ * pieces_[p].at.positions(), count = quotient_up(positions, most);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = positions * i / count;
      areas.push_back({p, first, positions * (i + 1) / count - first});
    }
  }
  return areas;
}

double ConvolutionAreas::before(const ConvolutionArea& area) const {
  return static_cast<double>(area.first) / static_cast<double>(batch_ * pieces_[area.piece].at.positions());
}

std::int64_t ConvolutionAreas::taps_of(const ConvolutionArea& area) const {
  const GridPiece& piece = pieces_[area.piece].at;
  return lines_ && piece.taps[2] > 0 ? piece.taps[0] * piece.taps[1] : piece.all_taps();
}

void ConvolutionAreas::find_positions(const PositionedChannels& channels, const Triple& start, const Triple& step,
                                      const ConvolutionArea& area, std::int64_t* offsets) const {
  walk_positions(pieces_[area.piece].at.count, area.first, area.positions, [&](const PositionRun& run) {
    const std::int64_t next = step[2] * channels.channels;
    std::int64_t offset =
        channels.offset(run.image, start[0] + run.depth * step[0], start[1] + run.height * step[1], start[2] + run.width * step[2]);
    for (std::int64_t i = 0; i < run.count; ++i, offset += next) offsets[run.index + i] = offset;
  });
}

void ConvolutionAreas::find_targets(const ConvolutionArea& area, std::int64_t* targets) const {
  const auto& [g, piece] = pieces_[area.piece];
  const TapGrid& grid = grids_[g];
  Triple start{};
  for (std::size_t i = 0; i < 3; ++i) start[i] = grid.start[i] + piece.first[i] * grid.step[i];
  find_positions(result_, start, grid.step, area, targets);
}

void ConvolutionAreas::find_sources(const ConvolutionArea& area, std::int64_t* sources) const {
  const auto& [g, piece] = pieces_[area.piece];
  const TapGrid& grid = grids_[g];
  Triple start{};
  for (std::size_t i = 0; i < 3; ++i) start[i] = piece.first[i] * grid.scale[i] + offset_of(grid, i, piece.first_tap[i]);
  find_positions(source_, start, grid.scale, area, sources);
}

void ConvolutionAreas::find_taps(const ConvolutionArea& area, std::int64_t* offsets, std::int64_t* numbers) const {
  const auto& [g, piece] = pieces_[area.piece];
  const TapGrid& grid = grids_[g];
  Triple taps = piece.taps, count{};
  for (std::size_t i = 0; i < 3; ++i) count[i] = static_cast<std::int64_t>(grid.along[i].size());
  Triple first = piece.first_tap;
  if (lines_) taps[2] = count[2] = 1, first[2] = 0;
  walk_positions(taps, 0, taps[0] * taps[1] * taps[2], [&](const PositionRun& run) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const Triple at{first[0] + run.depth, first[1] + run.height, first[2] + run.width + i};
      Triple moved{};
      for (std::size_t d = 0; d < 3; ++d) moved[d] = offset_of(grid, d, at[d]) - offset_of(grid, d, first[d]);
      offsets[run.index + i] = source_.offset(0, moved[0], moved[1], moved[2]);
      numbers[run.index + i] = (at[0] * count[1] + at[1]) * count[2] + at[2];
    }
  });
}

}  // namespace gcomp::runtime::cpu
