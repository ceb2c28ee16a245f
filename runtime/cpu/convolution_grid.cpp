#include "runtime/cpu/convolution_grid.h"

#include <algorithm>
#include <optional>

namespace gcomp::runtime::cpu {
namespace {

using Triple = ConvolutionShape::Triple;

/// Calls visit(index, place) for each place of the kernel, in the order of its weights.
template <class Visit>
void for_places(const Triple& kernel, Visit visit) {
  std::int64_t index = 0;
  for (std::int64_t d = 0; d < kernel[0]; ++d)
    for (std::int64_t h = 0; h < kernel[1]; ++h)
      for (std::int64_t w = 0; w < kernel[2]; ++w) visit(index++, Triple{d, h, w});
}

/// The offset by which a place of the kernel reads along a dimension; nothing where it falls between source positions.
template <class OffsetOf>
void add_taps(TapGrid& grid, const Triple& kernel, OffsetOf offset_of) {
  std::array<std::vector<std::optional<std::int64_t>>, 3> offsets;
  for (std::size_t i = 0; i < 3; ++i)
    for (std::int64_t place = 0; place < kernel[i]; ++place) {
      offsets[i].push_back(offset_of(i, place));
      if (offsets[i].back()) grid.along[i].push_back(*offsets[i].back());
    }
  for_places(kernel, [&](std::int64_t index, const Triple& place) {
    Tap tap{index, {}};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::optional<std::int64_t>& offset = offsets[i][static_cast<std::size_t>(place[i])];
      if (!offset) return;
      tap.offset[i] = *offset;
    }
    grid.taps.push_back(tap);
  });
}

TapGrid output_grid(const ConvolutionShape& s) {
  TapGrid grid{.count = s.output, .scale = s.stride, .along = {}, .taps = {}};
  add_taps(grid, s.kernel, [&](std::size_t i, std::int64_t place) { return std::optional(place * s.dilation[i] - s.pad[i]); });
  return grid;
}

/// Input position x = remainder + stride * i meets output position o where x + pad = o * stride + place * dilation.
TapGrid input_grid(const ConvolutionShape& s, const Triple& remainder) {
  TapGrid grid{.start = remainder, .step = s.stride, .along = {}, .taps = {}};
  for (std::size_t i = 0; i < 3; ++i) grid.count[i] = (s.input[i] - remainder[i] + s.stride[i] - 1) / s.stride[i];
  add_taps(grid, s.kernel, [&](std::size_t i, std::int64_t place) {
    const std::int64_t distance = remainder[i] + s.pad[i] - place * s.dilation[i];
    return distance % s.stride[i] == 0 ? std::optional(distance / s.stride[i]) : std::nullopt;
  });
  return grid;
}

/// Neighbours along a dimension that read by the same taps.
struct Interval {
  std::int64_t first = 0, count = 0, first_tap = 0, taps = 0;
};

std::vector<Interval> intervals_of(const TapGrid::Offsets& offsets, std::int64_t count, std::int64_t scale, std::int64_t extent) {
  std::vector<Interval> intervals;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto inside = [&](std::int64_t offset) { return i * scale + offset >= 0 && i * scale + offset < extent; };
    const auto begin = std::ranges::find_if(offsets, inside), end = std::find_if_not(begin, offsets.end(), inside);
    const Interval here{i, 1, begin == end ? 0 : begin - offsets.begin(), end - begin};
    if (!intervals.empty() && intervals.back().first_tap == here.first_tap && intervals.back().taps == here.taps)
      ++intervals.back().count;
    else intervals.push_back(here);
  }
  return intervals;
}

}  // namespace

std::vector<TapGrid> tap_grids(const ConvolutionShape& shape, ConvolutionKind kind) {
  if (kind != ConvolutionKind::input_gradient) return {output_grid(shape)};
  std::vector<TapGrid> grids;
  for_places(shape.stride, [&](std::int64_t, const Triple& remainder) {
    TapGrid grid = input_grid(shape, remainder);
    if (grid.positions() > 0) grids.push_back(std::move(grid));
  });
  return grids;
}

std::vector<GridPiece> pieces_of(const TapGrid& grid, const Triple& source) {
  std::array<std::vector<Interval>, 3> along;
  for (std::size_t i = 0; i < 3; ++i) along[i] = intervals_of(grid.along[i], grid.count[i], grid.scale[i], source[i]);
  std::vector<GridPiece> pieces;
  for (const Interval& d : along[0])
    for (const Interval& h : along[1])
      for (const Interval& w : along[2])
        pieces.push_back({{d.first, h.first, w.first},
                          {d.count, h.count, w.count},
                          {d.first_tap, h.first_tap, w.first_tap},
                          {d.taps, h.taps, w.taps}});
  return pieces;
}

}  // namespace gcomp::runtime::cpu
