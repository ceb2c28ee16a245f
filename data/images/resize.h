// Resizing as Pillow 13.0 does it (src/libImaging/Resample.c): antialiased, two passes, mostly horizontal and then vertical, each
// with fixed-point coefficients whose result is rounded to bytes. Every pixel is Pillow's, on every instruction set.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace gcomp::data {

/// Edges within an image in pixels, pixel (0, 0) being from 0 to 1; fractions are meant.
struct FloatBox {
  float left, top, right, bottom;
};

enum class Filter : std::uint8_t { nearest, box, bilinear, hamming, bicubic, lanczos };

/// `box` of `from` as [height, width, from.channels]: Image.resize((width, height), filter, box=box). `to` is another image than
/// `from`; its memory is used again. Throws UserError where the box is not within the image, or a size is not positive.
void resize(const Image& from, const FloatBox& box, int height, int width, Filter filter, Image& to);

}  // namespace gcomp::data
