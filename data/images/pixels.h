// What the decoders share: checks of sizes, and rows converted as Pillow does it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/image.h"
#include "ir/base/error.h"

namespace gcomp::data {

/// Throws UserError where the size is empty or beyond the cap.
inline void check_size(std::int64_t height, std::int64_t width, std::int64_t max_pixels) {
  check_user(height > 0 && width > 0, "an image of ", width, " x ", height, " pixels");
  check_user(width <= max_pixels / height, "an image of ", width, " x ", height, " pixels, more than the ", max_pixels,
             " that are allowed (option max_pixels)");
}

/// Throws UserError where the box is empty or not within the image.
inline void check_box(const Box& box, const ImageSize& size) {
  check_user(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 && box.height <= size.height - box.top &&
                 box.width <= size.width - box.left,
             "a box of ", box.width, " x ", box.height, " pixels from (", box.left, ", ", box.top,
             ") on is not within an image of ", size.width, " x ", size.height);
}

/// Pillow's L of RGB: 299/1000, 587/1000 and 114/1000 in 16 bits.
constexpr std::uint8_t grey_of(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

/// `width` pixels between 1 and 3 channels. `from` and `to` are not the same memory.
void convert_row(const std::uint8_t* from, int from_channels, std::uint8_t* to, int to_channels, int width);

}  // namespace gcomp::data
