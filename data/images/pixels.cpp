#include "data/images/pixels.h"

#include <cstring>

namespace gcomp::data {

void convert_row(const std::uint8_t* from, int from_channels, std::uint8_t* to, int to_channels, int width) {
  if (from_channels == to_channels) {
    std::memcpy(to, from, static_cast<std::size_t>(width) * static_cast<std::size_t>(to_channels));
  } else if (to_channels == 1) {
    for (int x = 0; x < width; ++x) to[x] = grey_of(from + 3 * x);
  } else {
    for (int x = 0; x < width; ++x) to[3 * x] = to[3 * x + 1] = to[3 * x + 2] = from[x];
  }
}

}  // namespace gcomp::data
