// The input of a convolution of few channels, gathered: for each position a row of what its taps read, [tap][channel].
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/cpu/convolution_grid.h"

namespace gcomp::runtime::cpu {

/// Copies `count` elements in few moves, the last of which may overlap the one before.
template <class T>
void copy_run(const T* from, std::int64_t count, T* to) {
  const auto move = [&](std::int64_t at, auto elements) { std::memcpy(to + at, from + at, elements * sizeof(T)); };
  constexpr std::integral_constant<std::size_t, 8> eight;
  constexpr std::integral_constant<std::size_t, 4> four;
  if (count >= 8) {
    for (std::int64_t i = 0; i + 8 < count; i += 8) move(i, eight);
    move(count - 8, eight);
  } else if (count >= 4) {
    move(0, four);
    move(count - 4, four);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

/// Rows for positions [first, first + count) of a grid of outputs. `rows` holds count * taps * channels elements.
template <class T>
void gather_rows(const TapGrid& grid, const ConvolutionShape& shape, const PositionedChannels& source, const T* input,
                 std::int64_t first, std::int64_t count, T* rows) {
  const std::int64_t channels = source.channels, kernel_width = shape.kernel[2], width = kernel_width * channels;
  const auto lines = static_cast<std::int64_t>(grid.taps.size()) / kernel_width;
  const std::int64_t row = lines * width, step = grid.scale[2];
  // Where a whole line of the kernel is one run of the input: from `low` to before `high`.
  const bool dense = shape.dilation[2] == 1;
  const std::int64_t before = -grid.taps[0].offset[2], room = source.extent[2] - kernel_width + before;
  const std::int64_t low = before <= 0 ? 0 : (before + step - 1) / step, high = room < 0 ? 0 : room / step + 1;
  walk_positions(grid.count, first, count, [&](const PositionRun& run) {
    const std::int64_t begin = dense ? std::clamp(low - run.width, std::int64_t{0}, run.count) : run.count;
    const std::int64_t end = dense ? std::clamp(high - run.width, begin, run.count) : run.count;
    for (std::int64_t line = 0; line < lines; ++line) {
      const Tap& tap = grid.taps[static_cast<std::size_t>(line * kernel_width)];
      const std::int64_t d = run.depth * grid.scale[0] + tap.offset[0], h = run.height * grid.scale[1] + tap.offset[1];
      const bool inside = d >= 0 && d < source.extent[0] && h >= 0 && h < source.extent[1];
      const T* from = input + source.offset(run.image, d, h, 0);
      T* to = rows + run.index * row + line * width;
      const auto piecewise = [&](std::int64_t i) {
        for (std::int64_t k = 0; k < kernel_width; ++k) {
          const std::int64_t x = (run.width + i) * step + grid.taps[0].offset[2] + k * shape.dilation[2];
          T* at = to + i * row + k * channels;
          if (inside && x >= 0 && x < source.extent[2]) std::copy_n(from + x * channels, channels, at);
          else std::fill_n(at, channels, T{});
        }
      };
      for (std::int64_t i = 0; i < begin; ++i) piecewise(i);
      for (std::int64_t i = end; i < run.count; ++i) piecewise(i);
      if (!inside) {
        for (std::int64_t i = begin; i < end; ++i) std::fill_n(to + i * row, width, T{});
        continue;
      }
      from += ((run.width + begin) * step - before) * channels;
      for (std::int64_t i = begin; i < end; ++i, from += step * channels) copy_run(from, width, to + i * row);
    }
  });
}

}  // namespace gcomp::runtime::cpu
