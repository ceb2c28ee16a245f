#include "data/images/encoded_images.h"

#include <atomic>

#include "data/images/decode.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

std::atomic<std::uint64_t> encoded_images_made{0};

struct HeldFile {
  std::uint64_t of = 0;  // the id of its EncodedImages; 0 for none
  std::int64_t row = -1;
  std::vector<std::byte> bytes;
};
thread_local HeldFile held_file;

}  // namespace

EncodedImages::EncodedImages(std::int64_t max_pixels) : max_pixels_(max_pixels), id_(++encoded_images_made) {}

std::span<const std::byte> EncodedImages::encoded(std::int64_t row) const {
  if (held_file.of != id_ || held_file.row != row) {
    held_file.of = 0;
    read_encoded(row, held_file.bytes);
    held_file.of = id_;
    held_file.row = row;
  }
  return held_file.bytes;
}

template <class Body>
auto EncodedImages::within(std::int64_t row, Body body) const {
  const std::span<const std::byte> bytes = encoded(row);
  try {
    return body(bytes);
  } catch (const UserError& error) { throw UserError(concat(where_encoded(row), ": ", error.what())); }
}

ImageSize EncodedImages::size(std::int64_t row) const {
  return within(row, [&](std::span<const std::byte> bytes) { return read_header(bytes, max_pixels_).size; });
}

int EncodedImages::channels(std::int64_t row) const {
  return within(row, [&](std::span<const std::byte> bytes) { return read_header(bytes, max_pixels_).channels; });
}

void EncodedImages::decode(std::int64_t row, int channels, const std::optional<Box>& box, Image& image) const {
  within(row, [&](std::span<const std::byte> bytes) { data::decode(bytes, channels, box, max_pixels_, image); });
}

}  // namespace gcomp::data
