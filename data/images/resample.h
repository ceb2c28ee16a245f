// The two passes of resize.h. Every instruction set gives the same bytes: sums are of integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gcomp::data {

/// How many fractional bits coefficients have: 8 bits are for values, 2 for sums beyond them.
inline constexpr int kResampleBits = 32 - 8 - 2;

/// For each position of the result: which positions of the input count, and by how much.
struct Taps {
  struct Range {
    int first, count;
  };
  /// A multiple of this many coefficients lies at each position, zeros after the last.
  static constexpr int kGroup = 8;

  std::vector<Range> ranges;
  std::vector<std::int32_t> weights;  ///< [positions, stride]
  int stride = 0;

  const std::int32_t* at(std::size_t position) const { return weights.data() + position * static_cast<std::size_t>(stride); }
};

/// Rows [rows, width, channels] to [rows, taps.ranges.size(), channels]. `end` is where the memory that may be read ends.
using HorizontalPass = void (*)(const std::uint8_t* from, const std::uint8_t* end, int rows, int width, int channels,
                                const Taps& taps, std::uint8_t* to);
/// Rows of `bytes` bytes to taps.ranges.size() rows; position 0 of the ranges is the row `from`.
using VerticalPass = void (*)(const std::uint8_t* from, int bytes, const Taps& taps, std::uint8_t* to);

struct ResamplePasses {
  HorizontalPass horizontal;
  VerticalPass vertical;
};

extern const ResamplePasses kScalarPasses;
#ifdef __x86_64__
extern const ResamplePasses kAvx2Passes;  ///< to be called where the processor has AVX2
#endif
/// The fastest for this processor.
const ResamplePasses& resample_passes();

/// A sum of values times weights, with one half added before, as a byte.
inline std::uint8_t resampled_byte(std::int32_t sum) {
  const std::int32_t value = sum >> kResampleBits;
  return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}
inline constexpr std::int32_t kResampleHalf = 1 << (kResampleBits - 1);

}  // namespace gcomp::data
