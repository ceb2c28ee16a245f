// JPEG by libjpeg-turbo: baseline, progressive and arithmetic, grey, YCbCr, RGB, CMYK and YCCK. The arguments and errors are those
// of data/images/decode.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/images/decode.h"

namespace gcomp::data {

ImageHeader read_jpeg_header(std::span<const std::byte> bytes, std::int64_t max_pixels);
/// A file that ends early, or whose data do, is an error, as in Pillow; bytes between segments that mean nothing are passed over.
void decode_jpeg(std::span<const std::byte> bytes, int channels, const std::optional<Box>& box, std::int64_t max_pixels,
                 Image& image);

/// Baseline with 4:2:0 colours; `quality` is from 1 to 100. `bytes` gets the whole file.
void encode_jpeg(const Image& image, int quality, std::vector<std::byte>& bytes);

}  // namespace gcomp::data
