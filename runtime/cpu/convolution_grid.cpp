#include "runtime/cpu/convolution_grid.h"

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

TapGrid output_grid(const ConvolutionShape& s) {
  TapGrid grid{.count = s.output, .scale = s.stride, .taps = {}};
  for_places(s.kernel, [&](std::int64_t index, const Triple& place) {
    Tap tap{index, {}};
    for (std::size_t i = 0; i < 3; ++i) tap.offset[i] = place[i] * s.dilation[i] - s.pad[i];
    grid.taps.push_back(tap);
  });
  return grid;
}

/// Input position x = remainder + stride * i meets output position o where x + pad = o * stride + place * dilation.
TapGrid input_grid(const ConvolutionShape& s, const Triple& remainder) {
  TapGrid grid{.start = remainder, .step = s.stride, .taps = {}};
  for (std::size_t i = 0; i < 3; ++i) grid.count[i] = (s.input[i] - remainder[i] + s.stride[i] - 1) / s.stride[i];
  for_places(s.kernel, [&](std::int64_t index, const Triple& place) {
    Tap tap{index, {}};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t distance = remainder[i] + s.pad[i] - place[i] * s.dilation[i];
      if (distance % s.stride[i] != 0) return;
      tap.offset[i] = distance / s.stride[i];
    }
    grid.taps.push_back(tap);
  });
  return grid;
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

}  // namespace gcomp::runtime::cpu
