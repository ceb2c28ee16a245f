#include "tests/data/image_fixtures.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/files/npz.h"

namespace gcomp::data {

std::vector<NamedTensor> fixture_arrays(const std::string& file) {
  const runtime::NpzFile archive(concat(GCOMP_SOURCE_DIR "/tests/fixtures/data/", file));
  std::vector<NamedTensor> arrays;
  for (const std::string& name : archive.names()) arrays.emplace_back(name, archive.load(name));
  return arrays;
}

const Tensor& array_of(const std::vector<NamedTensor>& arrays, const std::string& name) {
  for (const auto& [known, tensor] : arrays)
    if (known == name) return tensor;
  throw InternalError("no fixture " + name);
}

Image image_of(const Tensor& pixels) {
  Image image;
  image.reshape(static_cast<int>(pixels.shape().at(0)), static_cast<int>(pixels.shape().at(1)),
                pixels.shape().size() == 3 ? static_cast<int>(pixels.shape()[2]) : 1);
  std::memcpy(image.pixels.data(), pixels.data(), image.pixels.size());
  return image;
}

std::vector<std::byte> fixture_image(const std::string& name) {
  static const std::vector<NamedTensor> arrays = fixture_arrays("images.npz");
  const Tensor& bytes = array_of(arrays, name);
  return {bytes.bytes().begin(), bytes.bytes().end()};
}

std::string difference(const Image& image, const Image& wanted) {
  if (image.height != wanted.height || image.width != wanted.width || image.channels != wanted.channels)
    return concat(image.height, " x ", image.width, " x ", image.channels, ", wanted ", wanted.height, " x ", wanted.width, " x ",
                  wanted.channels);
  int most = 0, count = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const int apart = std::abs(image.pixels[i] - wanted.pixels[i]);
    if (apart != 0 && count++ == 0) first = i;
    most = std::max(most, apart);
  }
  return count == 0 ? "" : concat(count, " of ", image.pixels.size(), " bytes differ, by up to ", most, ", the first at ", first);
}

Image cut(const Image& image, const Box& box) {
  Image part;
  part.reshape(box.height, box.width, image.channels);
  const std::size_t row = static_cast<std::size_t>(box.width * image.channels);
  for (int y = 0; y < box.height; ++y)
    std::memcpy(part.pixels.data() + static_cast<std::size_t>(y) * row,
                image.pixels.data() + static_cast<std::size_t>(((box.top + y) * image.width + box.left) * image.channels), row);
  return part;
}

Image test_picture(int height, int width, int channels) {
  Image image;
  image.reshape(height, width, channels);
  std::uint32_t noise = 12345;
  std::size_t i = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        noise = noise * 1664525 + 1013904223;
        const double smooth = 128 + 80 * std::sin(x / (5.0 + 2 * c) + y / 9.0) + (((x / 11 + y / 7 + c) % 2) != 0 ? 30 : -30);
        image.pixels[i++] = static_cast<std::uint8_t>(smooth + static_cast<double>(noise >> 28));
      }
  return image;
}

}  // namespace gcomp::data
