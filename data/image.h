// Images as transforms see them: decoded, bytes, of any size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gcomp::data {

struct ImageSize {
  int height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// A rectangle of pixels.
struct Box {
  int top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Box&) const = default;
};

/// [height, width, channels] bytes, interleaved; channels are 1 (grey) or 3 (red, green, blue). Its memory is kept when it is
/// filled anew.
struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;

  void reshape(int new_height, int new_width, int new_channels) {
    height = new_height, width = new_width, channels = new_channels;
    pixels.resize(static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * static_cast<std::size_t>(channels));
  }
};

/// Images of one array, by row. Safe to read from several threads at once; errors as Source's.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  /// From the header alone. Throws UserError where it is beyond the cap on pixels.
  virtual ImageSize size(std::int64_t row) const = 0;
  /// Channels as they are stored: 1 or 3 (what is transparent or has a palette counts as 3).
  virtual int channels(std::int64_t row) const = 0;
  /// The pixels of `box`, or all, with 1 or 3 channels, converted as Pillow does (L = R * 299/1000 + G * 587/1000 + B * 114/1000
  /// in its integer form). The pixels of a box are those that the whole image has there.
  virtual void decode(std::int64_t row, int channels, const std::optional<Box>& box, Image& image) const = 0;
};

}  // namespace gcomp::data
