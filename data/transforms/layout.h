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

/// Of a row; -1 where it has no channels.
inline std::int64_t channel_axis_of(const Shape& row) {
  if (row.size() != 3) return -1;
  return layout_of(row) == ImageLayout::hwc ? 2 : 0;
}

}  // namespace gcomp::data
