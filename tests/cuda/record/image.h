// What the emulated NVRTC gives in place of a cubin and the emulated driver loads: a header and a host library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/base/hash.h"

namespace gcomp::emulated {

struct ImageHeader {
  char magic[16];  ///< opens as an ELF file does, which a cubin is
  std::uint32_t architecture = 0;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;            ///< of the library
  std::uint64_t checksum = 0;         ///< over the library
  std::uint64_t header_checksum = 0;  ///< over what precedes it
};
inline constexpr char kImageMagic[17] =
    "\x7f"
    "ELF-emulated-01";

inline std::uint64_t checksum_of(const void* data, std::size_t bytes) { return fnv1a({static_cast<const char*>(data), bytes}); }

inline std::vector<std::byte> make_image(std::uint32_t architecture, std::span<const std::byte> library) {
  ImageHeader header;
  std::memcpy(header.magic, kImageMagic, sizeof header.magic);
  header.architecture = architecture;
  header.bytes = library.size();
  header.checksum = checksum_of(library.data(), library.size());
  header.header_checksum = checksum_of(&header, offsetof(ImageHeader, header_checksum));
  std::vector<std::byte> image(sizeof header + library.size());
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, library.data(), library.size());
  return image;
}

/// The library of an intact image. The driver is not told how long an image is, so the header has a checksum of its own.
inline std::optional<std::span<const std::byte>> library_of(const void* image, ImageHeader& header) {
  if (std::memcmp(image, kImageMagic, sizeof header.magic) != 0) return std::nullopt;
  std::memcpy(&header, image, sizeof header);
  if (checksum_of(&header, offsetof(ImageHeader, header_checksum)) != header.header_checksum) return std::nullopt;
  const std::byte* library = static_cast<const std::byte*>(image) + sizeof header;
  if (checksum_of(library, header.bytes) != header.checksum) return std::nullopt;
  return std::span(library, header.bytes);
}

}  // namespace gcomp::emulated
