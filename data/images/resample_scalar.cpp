#include "data/images/resample.h"

namespace gcomp::data {
namespace {

template <int kChannels>
void scalar_row(const std::uint8_t* from, const Taps& taps, std::uint8_t* to) {
  for (std::size_t x = 0; x < taps.ranges.size(); ++x, to += kChannels) {
    const auto [first, count] = taps.ranges[x];
    const std::int32_t* weights = taps.at(x);
    const std::uint8_t* pixel = from + first * kChannels;
    std::int32_t sums[kChannels];
    for (std::int32_t& sum : sums) sum = kResampleHalf;
    for (int i = 0; i < count; ++i, pixel += kChannels)
      for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weights[i];
    for (int c = 0; c < kChannels; ++c) to[c] = resampled_byte(sums[c]);
  }
}

void scalar_horizontal(const std::uint8_t* from, const std::uint8_t*, int rows, int width, int channels, const Taps& taps,
                       std::uint8_t* to) {
  for (int y = 0; y < rows;
       ++y, from += static_cast<std::size_t>(width * channels), to += taps.ranges.size() * static_cast<std::size_t>(channels))
    channels == 1 ? scalar_row<1>(from, taps, to) : scalar_row<3>(from, taps, to);
}

void scalar_vertical(const std::uint8_t* from, int bytes, const Taps& taps, std::uint8_t* to) {
  const auto stride = static_cast<std::size_t>(bytes);
  for (std::size_t y = 0; y < taps.ranges.size(); ++y, to += stride) {
    const auto [first, count] = taps.ranges[y];
    const std::int32_t* weights = taps.at(y);
    for (std::size_t x = 0; x < stride; ++x) {
      std::int32_t sum = kResampleHalf;
      for (int i = 0; i < count; ++i) sum += from[static_cast<std::size_t>(first + i) * stride + x] * weights[i];
      to[x] = resampled_byte(sum);
    }
  }
}

}  // namespace

const ResamplePasses kScalarPasses{scalar_horizontal, scalar_vertical};

const ResamplePasses& resample_passes() {
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return kAvx2Passes;
#endif
  return kScalarPasses;
}

}  // namespace gcomp::data
