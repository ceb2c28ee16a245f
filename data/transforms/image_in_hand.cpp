#include "data/transforms/image_in_hand.h"

#include <cstring>

namespace gcomp::data {

void ImageInHand::crop(const Box& box) {
  if (const ImageSize whole = size(); box == Box{0, 0, whole.height, whole.width}) return;
  if (source_) return decode(box);
  const auto line = static_cast<std::size_t>(box.width) * static_cast<std::size_t>(channels_);
  const auto stride = static_cast<std::size_t>(image_.width) * static_cast<std::size_t>(channels_);
  const std::uint8_t* from = image_.pixels.data() + static_cast<std::size_t>(box.top) * stride +
                             static_cast<std::size_t>(box.left) * static_cast<std::size_t>(channels_);
  // Lines move towards the front, first to last, and so never over one that is still to come.
  for (int y = 0; y < box.height; ++y)
    std::memmove(image_.pixels.data() + static_cast<std::size_t>(y) * line, from + static_cast<std::size_t>(y) * stride, line);
  image_.reshape(box.height, box.width, channels_);
}

}  // namespace gcomp::data
