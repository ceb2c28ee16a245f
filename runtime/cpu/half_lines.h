// Lines of f16 and bf16 on their way to a product and back, compiled with it once per instruction set: see gemm_kernel.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/gemm.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace gcomp {
// ir/base/dtype.h, where no function is inline.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
}  // namespace gcomp

namespace gcomp::runtime::cpu {
namespace {

/// The bits of an f32 in place of its value: conversions of bf16 are made of integers, which compilers turn into vectors.
typedef uint32_t __attribute__((may_alias)) FloatBits;

inline void widen_bf16(const uint16_t* from, float* to, int64_t count) {
  auto* bits = reinterpret_cast<FloatBits*>(to);
  for (int64_t i = 0; i < count; ++i) bits[i] = static_cast<uint32_t>(from[i]) << 16;
}

inline void widen_swapped_bf16(const uint16_t* from, float* to, int64_t count) {
  auto* bits = reinterpret_cast<FloatBits*>(to);
  for (int64_t i = 0; i + 2 <= count; i += 2) {
    bits[i] = static_cast<uint32_t>(from[i + 1]) << 16;
    bits[i + 1] = static_cast<uint32_t>(from[i]) << 16;
  }
  if (count % 2 == 0) return;
  bits[count - 1] = 0;
  bits[count] = static_cast<uint32_t>(from[count - 1]) << 16;
}

inline void interleave(const uint16_t* first, const uint16_t* second, uint32_t* to, int64_t count) {
  if (second)
    for (int64_t i = 0; i < count; ++i) to[i] = first[i] | static_cast<uint32_t>(second[i]) << 16;
  else
    for (int64_t i = 0; i < count; ++i) to[i] = first[i];
}

inline void narrow_bf16(const float* from, uint16_t* to, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000, kNan = 0x7fc0;
  const auto* bits = reinterpret_cast<const FloatBits*>(from);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t all = bits[i], rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16;
    to[i] = static_cast<uint16_t>((all & 0x7fffffff) > kInfinity ? kNan : rounded);
  }
}

#if defined(__F16C__)
constexpr int64_t kHalves = 8;  // of one instruction

inline void widen_f16(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kHalves <= count; i += kHalves)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(from[i])));
}

inline void narrow_f16(const float* from, uint16_t* to, int64_t count) {
  const auto halves = [](__m256 values) {
    constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_cvtps_ph(_mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q)), kToNearest);
  };
  int64_t i = 0;
  for (; i + kHalves <= count; i += kHalves)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves(_mm256_loadu_ps(from + i)));
  for (; i < count; ++i) to[i] = static_cast<uint16_t>(_mm_extract_epi16(halves(_mm256_set1_ps(from[i])), 0));
}
#else
inline void widen_f16(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = f16_to_float(from[i]);
}

inline void narrow_f16(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] != from[i] ? uint16_t{0x7e00} : float_to_f16(from[i]);
}
#endif

constexpr HalfLines half_lines() { return {widen_f16, widen_bf16, widen_swapped_bf16, interleave, narrow_f16, narrow_bf16}; }

}  // namespace
}  // namespace gcomp::runtime::cpu
