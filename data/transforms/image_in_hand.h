// An image on its way through a list of transforms.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "data/image.h"

namespace gcomp::data {

/// Decoding waits until pixels are asked for, so that a crop that comes first decodes its box alone. Keeps its memory from one
/// image to the next.
class ImageInHand {
 public:
  /// Of a row that is read when it is needed.
  void begin(const ImageSource& source, std::int64_t row, int channels) {
    source_ = &source, row_ = row, channels_ = channels;
    size_.reset();
  }
  /// Of pixels that the caller has put into pixels() after reshape().
  void begin(int height, int width, int channels) {
    source_ = nullptr, channels_ = channels;
    image_.reshape(height, width, channels);
  }

  ImageSize size() {
    if (!source_) return {image_.height, image_.width};
    if (!size_) size_ = source_->size(row_);
    return *size_;
  }
  int channels() const { return channels_; }
  Image& pixels() {
    if (source_) decode(std::nullopt);
    return image_;
  }
  /// `box` is within the image.
  void crop(const Box& box);
  /// Where a result is put before take_spare() makes it the image.
  Image& spare() { return spare_; }
  void take_spare() { std::swap(image_, spare_); }

 private:
  void decode(const std::optional<Box>& box) {
    source_->decode(row_, channels_, box, image_);
    source_ = nullptr;
  }

  const ImageSource* source_ = nullptr;  // null once decoded
  std::int64_t row_ = 0;
  int channels_ = 0;
  std::optional<ImageSize> size_;  // from the header, once it was asked for
  Image image_, spare_;
};

}  // namespace gcomp::data
