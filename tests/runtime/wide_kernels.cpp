#if defined(__x86_64__)
// Vectors of 64 bytes are two or more here, and a step of a tile hundreds of instructions: one at a time, for the compiler's sake.
#define GCOMP_UNROLLED_STEPS 1
#include "tests/runtime/wide_kernels.h"

#include <cstddef>

#include "runtime/cpu/amx_kernel.h"
#include "runtime/cpu/convolution_kernel.h"
#include "runtime/cpu/gemm_kernel.h"
#include "runtime/cpu/half_lines.h"
#include "tests/tiles_in_memory.h"

namespace gcomp::runtime::cpu {
namespace {

/// What VDPBF16PS does, lane by lane: fused multiply-adds, the second of a pair first.
struct PairsOneByOne {
  static constexpr int64_t kElements = 2;
  template <class Vector>
  static float all(float element) {
    return element;
  }
  template <class Vector>
  static inline __attribute__((always_inline)) void add(Vector& sum, const Vector& row, float element) {
    for (std::size_t lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) {
      const float a = row[lane];
      sum[lane] = __builtin_fmaf(second_of(a), second_of(element), sum[lane]);
      sum[lane] = __builtin_fmaf(first_of(a), first_of(element), sum[lane]);
    }
  }

 private:
  static float first_of(float pair) { return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, pair) << 16); }
  static float second_of(float pair) { return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, pair) & 0xffff0000U); }
};

struct TilesInMemory : gc_tile::InMemory {
  static void begin() {}
  static void end() {}
  static void narrow(const float* from, uint16_t* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = flushed(from[i]);
      narrow_bf16(&value, to + i, 1);
    }
  }
};

}  // namespace

const TileFunctions& tiles_in_memory() {
  static const TileFunctions functions = TileKernel<TilesInMemory>::functions();
  return functions;
}

const GemmFunctions& wide_gemm_functions() {
  static const GemmFunctions functions{Gemm<float, 64, 12, 2>::functions(), Gemm<double, 64, 12, 2>::functions(),
                                       Gemm<float, 64, 12, 2, PairsOneByOne>::bf16_functions(), half_lines()};
  return functions;
}

const ConvolutionFunctions& wide_convolution_functions() {
  static const ConvolutionFunctions functions = Convolution<float, 64, 8, 2>::functions();
  return functions;
}

const ConvolutionFunctions& wide_bf16_convolution_functions() {
  static const ConvolutionFunctions functions = Convolution<float, 64, 8, 2, PairsOneByOne>::bf16_functions();
  return functions;
}

}  // namespace gcomp::runtime::cpu

#endif
