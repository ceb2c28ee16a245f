#include "data/images/decode.h"

#include <algorithm>
#include <array>

#include "data/images/jpeg.h"
#include "data/images/png.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

bool has_start(std::span<const std::byte> bytes, std::span<const unsigned char> start) {
  return bytes.size() >= start.size() &&
         std::equal(start.begin(), start.end(), bytes.begin(), [](unsigned char a, std::byte b) { return std::byte{a} == b; });
}

[[noreturn]] void fail_codec(std::span<const std::byte> bytes) {
  throw UserError(bytes.empty() ? "an empty file, where a JPEG or PNG image was wanted"
                                : "neither JPEG nor PNG by its first bytes");
}

}  // namespace

ImageCodec codec_of(std::span<const std::byte> bytes) {
  constexpr std::array<unsigned char, 3> kJpeg{0xFF, 0xD8, 0xFF};
  constexpr std::array<unsigned char, 8> kPng{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  if (has_start(bytes, kJpeg)) return ImageCodec::jpeg;
  return has_start(bytes, kPng) ? ImageCodec::png : ImageCodec::none;
}

ImageHeader read_header(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  switch (codec_of(bytes)) {
    case ImageCodec::jpeg: return read_jpeg_header(bytes, max_pixels);
    case ImageCodec::png: return read_png_header(bytes, max_pixels);
    case ImageCodec::none: break;
  }
  fail_codec(bytes);
}

void decode(std::span<const std::byte> bytes, int channels, const std::optional<Box>& box, std::int64_t max_pixels, Image& image) {
  check_internal(channels == 1 || channels == 3, "an image of ", channels, " channels was asked for");
  switch (codec_of(bytes)) {
    case ImageCodec::jpeg: return decode_jpeg(bytes, channels, box, max_pixels, image);
    case ImageCodec::png: return decode_png(bytes, channels, box, max_pixels, image);
    case ImageCodec::none: break;
  }
  fail_codec(bytes);
}

}  // namespace gcomp::data
