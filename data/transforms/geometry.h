// Sizes and boxes of torchvision's transforms, to the pixel. Random ones take the numbers that they draw from `D`, which has
// uniform(low, high) and below(count), in torchvision's order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "data/image.h"

namespace gcomp::data {

/// Python's round() of a number that is not negative, and as near as int.
inline int rounded(double x) { return static_cast<int>(std::nearbyint(x)); }

/// resize(size) of one number: the shorter side becomes `side`, the longer one keeps the ratio, cut to a whole number.
inline ImageSize shorter_side(ImageSize from, int side) {
  const bool tall = from.height > from.width;
  const double longest = tall ? from.height : from.width, shortest = tall ? from.width : from.height;
  const int other = static_cast<int>(std::min(side * longest / shortest, 1e9));
  return tall ? ImageSize{other, side} : ImageSize{side, other};
}

/// The middle of an image at least as large, to the even number where the rest is odd.
inline Box central_box(ImageSize from, ImageSize to) {
  return {rounded((from.height - to.height) / 2.0), rounded((from.width - to.width) / 2.0), to.height, to.width};
}

struct SizeRange {
  double scale_low, scale_high;  ///< of the area
  double ratio_low, ratio_high;  ///< width to height, or for random_erasing height to width
};

/// Ten attempts at an area and a ratio whose logarithm is uniform, in single precision as torch has them; then the most of the
/// middle that keeps the ratio.
template <class D>
Box random_resized_box(ImageSize from, const SizeRange& range, D& draw) {
  const double area = static_cast<double>(from.height) * from.width;
  const float low = std::log(static_cast<float>(range.ratio_low)), high = std::log(static_cast<float>(range.ratio_high));
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * static_cast<float>(draw.uniform(range.scale_low, range.scale_high));
    const double ratio = std::exp(static_cast<float>(draw.uniform(low, high)));
    const int width = rounded(std::sqrt(target * ratio)), height = rounded(std::sqrt(target / ratio));
    if (width <= 0 || width > from.width || height <= 0 || height > from.height) continue;
    const auto top = static_cast<int>(draw.below(from.height - height + 1));
    const auto left = static_cast<int>(draw.below(from.width - width + 1));
    return {top, left, height, width};
  }
  const double ratio = static_cast<double>(from.width) / from.height;
  ImageSize size = from;
  if (ratio < range.ratio_low) size.height = std::max(1, rounded(from.width / range.ratio_low));
  if (ratio > range.ratio_high) size.width = std::max(1, rounded(from.height * range.ratio_high));
  return {(from.height - size.height) / 2, (from.width - size.width) / 2, size.height, size.width};
}

/// What random_erasing covers; nothing where ten attempts found no box smaller than the image.
template <class D>
std::optional<Box> random_erased_box(ImageSize from, const SizeRange& range, D& draw) {
  const double area = static_cast<double>(from.height) * from.width;
  const float low = std::log(static_cast<float>(range.ratio_low)), high = std::log(static_cast<float>(range.ratio_high));
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double erased = area * static_cast<float>(draw.uniform(range.scale_low, range.scale_high));
    const double ratio = std::exp(static_cast<float>(draw.uniform(low, high)));
    const int height = rounded(std::sqrt(erased * ratio)), width = rounded(std::sqrt(erased / ratio));
    if (height >= from.height || width >= from.width) continue;
    const auto top = static_cast<int>(draw.below(from.height - height + 1));
    const auto left = static_cast<int>(draw.below(from.width - width + 1));
    return Box{top, left, height, width};
  }
  return std::nullopt;
}

/// cutmix: a box of 1 - lambda of the area in the image's ratio, around a point drawn in it, cut at the edges.
template <class D>
Box cutmix_box(ImageSize from, double lambda, D& draw) {
  const auto x = static_cast<int>(draw.below(from.width)), y = static_cast<int>(draw.below(from.height));
  const double half = 0.5 * std::sqrt(1 - lambda);
  const int half_width = static_cast<int>(half * from.width), half_height = static_cast<int>(half * from.height);
  const int left = std::max(0, x - half_width), right = std::min(from.width, x + half_width);
  const int top = std::max(0, y - half_height), bottom = std::min(from.height, y + half_height);
  return {top, left, bottom - top, right - left};
}

}  // namespace gcomp::data
