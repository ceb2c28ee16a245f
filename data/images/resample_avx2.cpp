// The passes with AVX2. Functions say so themselves, not the file's compile options: inline functions of headers that this file
// compiles may be those that the linker keeps for all.
#ifdef __x86_64__

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "data/images/resample.h"

#define GCOMP_AVX2 __attribute__((target("avx2")))

namespace gcomp::data {
namespace {

// Pixels of three bytes are read 16 bytes at a time, four pixels of a group of weights: of what a row may read beyond its last
// pixel.
constexpr int kOverread = 16;

/// The sums of one position's red, green and blue, in lanes 0 to 2 of either half, the halves still to be added.
GCOMP_AVX2 inline __m256i rgb_sums(const std::uint8_t* pixels, const std::int32_t* weights, int count) {
  // Pixels 0 and 1, or 2 and 3, of 16 bytes: their bytes as 32 bits, one pixel in each half.
  const __m256i first = _mm256_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, -1, -1, -1, -1,  //
                                         3, -1, -1, -1, 4, -1, -1, -1, 5, -1, -1, -1, -1, -1, -1, -1);
  const __m256i second = _mm256_setr_epi8(6, -1, -1, -1, 7, -1, -1, -1, 8, -1, -1, -1, -1, -1, -1, -1,  //
                                          9, -1, -1, -1, 10, -1, -1, -1, 11, -1, -1, -1, -1, -1, -1, -1);
  const __m256i weights_first = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
                weights_second = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
  __m256i sums = _mm256_setzero_si256(), others = _mm256_setzero_si256();
  for (int i = 0; i < count; i += 4) {
    const __m256i four = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 3 * i)));
    const __m256i by = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + i)));
    sums = _mm256_add_epi32(sums,
                            _mm256_mullo_epi32(_mm256_shuffle_epi8(four, first), _mm256_permutevar8x32_epi32(by, weights_first)));
    others = _mm256_add_epi32(
        others, _mm256_mullo_epi32(_mm256_shuffle_epi8(four, second), _mm256_permutevar8x32_epi32(by, weights_second)));
  }
  return _mm256_add_epi32(sums, others);
}

/// One row; up to kOverread bytes beyond the last pixel that counts are read. Four bytes are written for each pixel but the last,
/// whose fourth would be of the next row.
GCOMP_AVX2 void avx2_rgb_row(const std::uint8_t* from, const Taps& taps, std::uint8_t* to) {
  const __m128i half = _mm_set1_epi32(kResampleHalf);
  const std::size_t positions = taps.ranges.size();
  for (std::size_t x = 0; x < positions; ++x, to += 3) {
    const auto [first, count] = taps.ranges[x];
    const __m256i sums = rgb_sums(from + 3 * first, taps.at(x), count);
    const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i values = _mm_srai_epi32(_mm_add_epi32(both, half), kResampleBits);
    const __m128i words = _mm_packs_epi32(values, values);
    const int rgb = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(to, &rgb, x + 1 < positions ? 4 : 3);
  }
}

GCOMP_AVX2 void avx2_grey_row(const std::uint8_t* from, const Taps& taps, std::uint8_t* to) {
  for (std::size_t x = 0; x < taps.ranges.size(); ++x) {
    const auto [first, count] = taps.ranges[x];
    const std::int32_t* weights = taps.at(x);
    __m256i sums = _mm256_setzero_si256();
    for (int i = 0; i < count; i += 8) {
      const __m256i pixels = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + first + i)));
      sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(pixels, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + i))));
    }
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
    to[x] = resampled_byte(_mm_cvtsi128_si32(sum) + kResampleHalf);
  }
}

GCOMP_AVX2 void avx2_horizontal(const std::uint8_t* from, const std::uint8_t* end, int rows, int width, int channels,
                                const Taps& taps, std::uint8_t* to) {
  thread_local std::vector<std::uint8_t> last;  // a row near the end of memory, with what may be read beyond it
  const auto stride = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  const auto row = channels == 1 ? avx2_grey_row : avx2_rgb_row;
  for (int y = 0; y < rows; ++y, from += stride, to += taps.ranges.size() * static_cast<std::size_t>(channels)) {
    const std::uint8_t* pixels = from;
    if (end - from < static_cast<std::ptrdiff_t>(stride) + kOverread) {
      last.resize(stride + kOverread);
      std::memcpy(last.data(), from, stride);
      pixels = last.data();
    }
    row(pixels, taps, to);
  }
}

/// 32 bytes of a row from those of `count` rows.
GCOMP_AVX2 inline void avx2_columns(const std::uint8_t* from, std::size_t stride, const std::int32_t* weights, int count,
                                    std::uint8_t* to) {
  const __m256i half = _mm256_set1_epi32(kResampleHalf);
  __m256i sums[4] = {half, half, half, half};
  for (int i = 0; i < count; ++i, from += stride) {
    const __m256i by = _mm256_set1_epi32(weights[i]);
    for (int part = 0; part < 4; ++part) {
      const __m256i values = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * part)));
      sums[part] = _mm256_add_epi32(sums[part], _mm256_mullo_epi32(values, by));
    }
  }
  for (__m256i& sum : sums) sum = _mm256_srai_epi32(sum, kResampleBits);
  const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
  const __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
}

GCOMP_AVX2 void avx2_vertical(const std::uint8_t* from, int bytes, const Taps& taps, std::uint8_t* to) {
  constexpr int kColumns = 32;
  if (bytes < kColumns) return kScalarPasses.vertical(from, bytes, taps, to);
  const auto stride = static_cast<std::size_t>(bytes);
  for (std::size_t y = 0; y < taps.ranges.size(); ++y, to += stride) {
    const auto [first, count] = taps.ranges[y];
    const std::uint8_t* rows = from + static_cast<std::size_t>(first) * stride;
    for (int x = 0; x < bytes; x += kColumns) {
      const int column = std::min(x, bytes - kColumns);  // the last ones overlap those before
      avx2_columns(rows + column, stride, taps.at(y), count, to + column);
    }
  }
}

}  // namespace

const ResamplePasses kAvx2Passes{avx2_horizontal, avx2_vertical};

}  // namespace gcomp::data

#endif  // __x86_64__
