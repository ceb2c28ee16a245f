// PNG by libpng: every colour type and depth, interlaced or not. The arguments and errors are those of data/images/decode.h.
//
// What is transparent loses its alpha and keeps its colour. Of 16 bits the upper 8 stay, but of grey without alpha min(value, 255),
// which is what Pillow makes of those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/images/decode.h"

namespace gcomp::data {

ImageHeader read_png_header(std::span<const std::byte> bytes, std::int64_t max_pixels);
void decode_png(std::span<const std::byte> bytes, int channels, const std::optional<Box>& box, std::int64_t max_pixels,
                Image& image);

/// Grey or RGB with 8 bits. `bytes` gets the whole file.
void encode_png(const Image& image, std::vector<std::byte>& bytes);

}  // namespace gcomp::data
