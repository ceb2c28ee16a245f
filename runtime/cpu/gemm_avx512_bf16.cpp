#if defined(__x86_64__)
#include <immintrin.h>

#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {
namespace {

/// An element is a pair of bf16 in the bits of an f32, the first in the lower half: the products of both are added, the second's
/// first, each sum rounded to f32.
struct MultiplyPairs {
  static constexpr int64_t kDepth = kGemmDepth / 2, kElements = 2;
  template <class Vector>
  static inline __attribute__((always_inline)) void add(Vector& sum, const Vector& row, float element) {
    sum = reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(row),
                                                    reinterpret_cast<__m512bh>(_mm512_set1_ps(element))));
  }
};

}  // namespace

extern const GemmFunction kGemmAvx512Bf16;
const GemmFunction kGemmAvx512Bf16 = Gemm<float, 64, 12, 2, MultiplyPairs>::bf16_functions();

}  // namespace gcomp::runtime::cpu

#endif
