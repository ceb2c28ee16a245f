// The step of kernels that multiply pairs of bf16, for files that are compiled for AVX512-BF16.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace gcomp::runtime::cpu {
namespace {

/// An element is a pair of bf16 in the bits of an f32, the first in the lower half: the products of both are added, the second's
/// first, each sum rounded to f32.
struct MultiplyPairs {
  static constexpr int64_t kElements = 2;
  template <class Vector>
  static inline __attribute__((always_inline)) __m512bh all(const float& element) {
    return reinterpret_cast<__m512bh>(_mm512_set1_ps(element));
  }
  template <class Vector>
  static inline __attribute__((always_inline)) void add(Vector& sum, const Vector& row, const __m512bh& element) {
    sum = reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(row), element));
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
