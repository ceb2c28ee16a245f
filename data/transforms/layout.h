// Where the height, width and channels of an image stand in a row.
#pragma once

#include <cstdint>

#include "ir/base/tensor.h"

namespace gcomp::data {

enum class ImageLayout : std::uint8_t {
  chw,
  hwc,
  hw,    ///< one channel
  flat,  ///< [H*W], or [C*H*W] channel by channel
};

inline bool is_channels(std::int64_t size) { return size == 1 || size == 3; }

/// Of a row's shape: [H,W,C] where the last dimension is 1 or 3 and the first is not; else [C,H,W].
inline ImageLayout layout_of(const Shape& row) {
  if (row.size() == 1) return ImageLayout::flat;
  if (row.size() == 2) return ImageLayout::hw;
  return is_channels(row[2]) && !is_channels(row[0]) ? ImageLayout::hwc : ImageLayout::chw;
}

/// Whether rows of this shape may be images: [H,W], [C,H,W] or [H,W,C].
inline bool is_image_shape(const Shape& row) {
  return row.size() == 2 || (row.size() == 3 && (is_channels(row[0]) || is_channels(row[2])));
}

struct ImageShape {
  int channels = 0, height = 0, width = 0;
};
/// Of a row of this shape, which is not flat.
inline ImageShape image_shape(const Shape& row) {
  const auto side = [&](std::size_t axis) { return static_cast<int>(row[axis]); };
  switch (layout_of(row)) {
    case ImageLayout::chw: return {side(0), side(1), side(2)};
    case ImageLayout::hwc: return {side(2), side(0), side(1)};
    default: return {1, side(0), side(1)};
  }
}

inline Shape row_shape(ImageLayout layout, const ImageShape& image) {
  switch (layout) {
    case ImageLayout::chw: return {image.channels, image.height, image.width};
    case ImageLayout::hwc: return {image.height, image.width, image.channels};
    case ImageLayout::hw: return {image.height, image.width};
    case ImageLayout::flat: break;
  }
  return {static_cast<std::int64_t>(image.channels) * image.height * image.width};
}

/// Of a row; -1 where it has no channels.
inline std::int64_t channel_axis_of(const Shape& row) {
  if (row.size() != 3) return -1;
  return layout_of(row) == ImageLayout::hwc ? 2 : 0;
}

}  // namespace gcomp::data
