#include "data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "data/images/resample.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

// The filters and what is made of them are Pillow's, operation by operation, so that every coefficient has its bits.
double box_filter(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double bilinear_filter(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double hamming_filter(double x) {
  x = std::abs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x = x * std::numbers::pi;
  return std::sin(x) / x * (0.54f + 0.46f * std::cos(x));
}

double bicubic_filter(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos_filter(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

struct FilterShape {
  double (*value)(double);
  double support;
};

constexpr FilterShape kFilterShapes[] = {{nullptr, 0.0},        {box_filter, 0.5},     {bilinear_filter, 1.0},
                                         {hamming_filter, 1.0}, {bicubic_filter, 2.0}, {lanczos_filter, 3.0}};

/// What a thread keeps from one image to the next.
struct ResizeMemory {
  Taps horizontal, vertical;
  std::vector<double> values;
  std::vector<std::uint8_t> middle;
  std::vector<int> columns;
};

/// precompute_coeffs() and normalize_coeffs_8bpc() of Pillow: `from` to `to` of an axis of `size` pixels become `count` positions.
void make_taps(int size, float from, float to, int count, const FilterShape& filter, std::vector<double>& values, Taps& taps) {
  const double scale = static_cast<double>(to - from) / count, filter_scale = std::max(scale, 1.0);
  const double support = filter.support * filter_scale, step = 1.0 / filter_scale;
  const int most = static_cast<int>(std::ceil(support)) * 2 + 1;
  taps.stride = (most + Taps::kGroup - 1) / Taps::kGroup * Taps::kGroup;
  taps.ranges.resize(static_cast<std::size_t>(count));
  taps.weights.assign(static_cast<std::size_t>(count) * static_cast<std::size_t>(taps.stride), 0);
  values.resize(static_cast<std::size_t>(most));
  for (int position = 0; position < count; ++position) {
    const double center = from + (position + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), size);
    double sum = 0.0;
    for (int i = 0; i < end - first; ++i) {
      values[static_cast<std::size_t>(i)] = filter.value((i + first - center + 0.5) * step);
      sum += values[static_cast<std::size_t>(i)];
    }
    taps.ranges[static_cast<std::size_t>(position)] = {first, std::max(end - first, 0)};
    std::int32_t* weights = taps.weights.data() + static_cast<std::size_t>(position) * static_cast<std::size_t>(taps.stride);
    for (int i = 0; i < end - first; ++i) {
      const double weight = sum != 0.0 ? values[static_cast<std::size_t>(i)] / sum : values[static_cast<std::size_t>(i)];
      weights[i] = static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kResampleBits));
    }
  }
}

void copy_box(const Image& from, int top, int left, Image& to) {
  const auto channels = static_cast<std::size_t>(from.channels);
  const std::size_t stride = static_cast<std::size_t>(from.width) * channels, row = static_cast<std::size_t>(to.width) * channels;
  for (int y = 0; y < to.height; ++y)
    std::memcpy(to.pixels.data() + static_cast<std::size_t>(y) * row,
                from.pixels.data() + static_cast<std::size_t>(top + y) * stride + static_cast<std::size_t>(left) * channels, row);
}

/// Pillow's ImagingScaleAffine: positions are sums, which rounding may lead out of the image; such pixels are 0.
void resize_nearest(const Image& from, const FloatBox& box, Image& to, std::vector<int>& columns) {
  const double step_x = static_cast<double>(box.right - box.left) / to.width;
  const double step_y = static_cast<double>(box.bottom - box.top) / to.height;
  const auto channels = static_cast<std::size_t>(from.channels);
  columns.resize(static_cast<std::size_t>(to.width));
  double x = box.left + step_x * 0.5;
  for (int& column : columns) {
    column = x < from.width ? static_cast<int>(x) : -1;
    x += step_x;
  }
  double y = box.top + step_y * 0.5;
  std::uint8_t* out = to.pixels.data();
  for (int row = 0; row < to.height; ++row, y += step_y) {
    const std::uint8_t* line =
        y < from.height ? from.pixels.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(from.width) * channels
                        : nullptr;
    for (const int column : columns) {
      for (std::size_t c = 0; c < channels; ++c)
        *out++ = line && column >= 0 ? line[static_cast<std::size_t>(column) * channels + c] : 0;
    }
  }
}

/// One pass or both, rows first. The vertical pass reads some of the rows, and no others are made for it.
void resize_across_first(const Image& from, bool horizontal, bool vertical, ResizeMemory& memory, Image& to) {
  const ResamplePasses& passes = resample_passes();
  std::vector<Taps::Range>& ranges = memory.vertical.ranges;
  const int first = vertical ? ranges.front().first : 0;
  const int end = vertical ? ranges.back().first + ranges.back().count : to.height;
  const auto channels = static_cast<std::size_t>(from.channels);
  const std::uint8_t* pixels =
      from.pixels.data() + static_cast<std::size_t>(first) * static_cast<std::size_t>(from.width) * channels;
  if (horizontal) {
    std::uint8_t* made = to.pixels.data();
    if (vertical) {
      memory.middle.resize(static_cast<std::size_t>(end - first) * static_cast<std::size_t>(to.width) * channels);
      made = memory.middle.data();
    }
    passes.horizontal(pixels, from.pixels.data() + from.pixels.size(), end - first, from.width, from.channels, memory.horizontal,
                      made);
    pixels = made;
  }
  if (!vertical) return;
  for (Taps::Range& range : ranges) range.first -= first;
  passes.vertical(pixels, to.width * from.channels, memory.vertical, to.pixels.data());
}

/// Both passes, columns first.
void resize_down_first(const Image& from, ResizeMemory& memory, Image& to) {
  const ResamplePasses& passes = resample_passes();
  const int stride = from.width * from.channels;
  memory.middle.resize(static_cast<std::size_t>(to.height) * static_cast<std::size_t>(stride));
  const std::uint8_t* end = memory.middle.data() + memory.middle.size();
  passes.vertical(from.pixels.data(), stride, memory.vertical, memory.middle.data());
  passes.horizontal(memory.middle.data(), end, to.height, from.width, from.channels, memory.horizontal, to.pixels.data());
}

void check_resize(const Image& from, const FloatBox& box, int height, int width) {
  check_user(height > 0 && width > 0, "an image is to be resized to ", width, " x ", height, " pixels");
  const bool within = box.left >= 0 && box.top >= 0 && box.right <= static_cast<float>(from.width) &&
                      box.bottom <= static_cast<float>(from.height) && box.left < box.right && box.top < box.bottom;
  check_user(within, "a box from (", box.left, ", ", box.top, ") to (", box.right, ", ", box.bottom, ") is not within an image of ",
             from.width, " x ", from.height);
  check_internal(from.channels == 1 || from.channels == 3, "an image of ", from.channels, " channels is resized");
}

}  // namespace

void resize(const Image& from, const FloatBox& box, int height, int width, Filter filter, Image& to) {
  check_resize(from, box, height, width);
  thread_local ResizeMemory memory;
  to.reshape(height, width, from.channels);
  const auto is_whole = [](float value) { return value == std::trunc(value); };
  if (is_whole(box.left) && is_whole(box.top) && box.right - box.left == static_cast<float>(width) &&
      box.bottom - box.top == static_cast<float>(height))
    return copy_box(from, static_cast<int>(box.top), static_cast<int>(box.left), to);
  if (filter == Filter::nearest) return resize_nearest(from, box, to, memory.columns);

  const FilterShape& shape = kFilterShapes[static_cast<std::size_t>(filter)];
  const bool horizontal = width != from.width || box.left != 0 || box.right != static_cast<float>(width);
  const bool vertical = height != from.height || box.top != 0 || box.bottom != static_cast<float>(height);
  if (vertical) make_taps(from.height, box.top, box.bottom, height, shape, memory.values, memory.vertical);
  if (horizontal) make_taps(from.width, box.left, box.right, width, shape, memory.values, memory.horizontal);
  // Rounding between the passes makes their order count: Pillow's, which since 13.0 takes the vertical one first where heights
  // shrink much.
  if (horizontal && vertical && height < from.height && from.height - height > 2 * (from.width - width))
    return resize_down_first(from, memory, to);
  resize_across_first(from, horizontal, vertical, memory, to);
}

}  // namespace gcomp::data
