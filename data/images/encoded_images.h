// Images that a source holds as JPEG or PNG files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace gcomp::data {

/// More than any image file has; a larger one is no image.
inline constexpr std::uint64_t kLargestImageFile = std::uint64_t{1} << 30;

/// Each thread keeps the file that it read last, so that a size and then pixels are asked for at the price of one reading.
class EncodedImages : public ImageSource {
 public:
  ImageSize size(std::int64_t row) const override;
  int channels(std::int64_t row) const override;
  void decode(std::int64_t row, int channels, const std::optional<Box>& box, Image& image) const override;

 protected:
  explicit EncodedImages(std::int64_t max_pixels);
  std::int64_t max_pixels() const { return max_pixels_; }
  /// The row's file; errors name it. The vector's memory is kept.
  virtual void read_encoded(std::int64_t row, std::vector<std::byte>& bytes) const = 0;
  /// What errors about the row's pixels begin with.
  virtual std::string where_encoded(std::int64_t row) const = 0;

 private:
  std::span<const std::byte> encoded(std::int64_t row) const;
  /// Runs `body` with the row's file; its UserErrors then begin with the row's place.
  template <class Body>
  auto within(std::int64_t row, Body body) const;

  std::int64_t max_pixels_;
  std::uint64_t id_;  // of no other object in this process
};

}  // namespace gcomp::data
