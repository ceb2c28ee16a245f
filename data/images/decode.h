// Encoded images in memory, JPEG or PNG by their first bytes, as pixels: those that Pillow's Image.open(...).convert("RGB") gives,
// or convert("L") for one channel. The orientation that a camera noted (EXIF) is not looked at, as torchvision does not. Every
// thread keeps a decoder and its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "data/image.h"

namespace gcomp::data {

/// Where Pillow refuses an image as a bomb: twice its 89,478,485.
inline constexpr std::int64_t kMostPixels = 178'956'970;

enum class ImageCodec : std::uint8_t { none, jpeg, png };

struct ImageHeader {
  ImageSize size;
  int channels = 3;  ///< 1 for grey, else 3
};

/// What the first bytes say that the others are.
ImageCodec codec_of(std::span<const std::byte> bytes);

/// From the header alone. Throws UserError, which names no file, where the bytes are no JPEG or PNG, the header is damaged, or the
/// image has more than `max_pixels`.
ImageHeader read_header(std::span<const std::byte> bytes, std::int64_t max_pixels = kMostPixels);
inline ImageSize read_size(std::span<const std::byte> bytes) { return read_header(bytes).size; }

/// The pixels of `box`, or all, with 1 or 3 channels. The pixels of a box are those that the whole image has there; damage below it
/// stays unseen. Throws UserError as read_header(), and where the data are damaged or cut off.
void decode(std::span<const std::byte> bytes, int channels, const std::optional<Box>& box, std::int64_t max_pixels, Image& image);

}  // namespace gcomp::data
