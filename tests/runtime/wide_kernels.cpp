#if defined(__x86_64__)
#include "tests/runtime/wide_kernels.h"

#include "runtime/cpu/amx_kernel.h"
#include "runtime/cpu/convolution_kernel.h"
#include "runtime/cpu/gemm_kernel.h"
#include "runtime/cpu/half_lines.h"

namespace gcomp::runtime::cpu {
namespace {

/// What VDPBF16PS does, lane by lane: fused multiply-adds, the second of a pair first.
struct PairsOneByOne {
  static constexpr int64_t kElements = 2;
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

/// The registers of AMX in memory, and TDPBF16PS as Intel's instruction set reference writes it down.
struct TilesInMemory {
  struct Tile {
    alignas(64) unsigned char row[16][64];

    float& sum(int i, int j) { return reinterpret_cast<float*>(row[i])[j]; }
    float element(int i, int j) const {
      uint16_t bits;
      __builtin_memcpy(&bits, row[i] + 2 * j, 2);
      return flushed(__builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16));
    }
  };
  static Tile& tile(int number) {
    thread_local Tile tiles[8];
    return tiles[number];
  }
  static float flushed(float value) { return __builtin_fabsf(value) < __FLT_MIN__ ? __builtin_copysignf(0, value) : value; }

  static void begin() {}
  static void end() {}
  template <int T>
  static void zero() {
    tile(T) = {};
  }
  template <int T>
  static void load(const void* from, int64_t bytes) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(tile(T).row[i], static_cast<const char*>(from) + i * bytes, 64);
  }
  template <int T>
  static void store(void* to, int64_t bytes) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(static_cast<char*>(to) + i * bytes, tile(T).row[i], 64);
  }
  template <int C, int A, int B>
  static void add_products() {
    const Tile &a = tile(A), &b = tile(B);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        float even = 0, odd = 0;
        for (int pair = 0; pair < 16; ++pair) {
          even = flushed(__builtin_fmaf(a.element(i, 2 * pair), b.element(pair, 2 * j), even));
          odd = flushed(__builtin_fmaf(a.element(i, 2 * pair + 1), b.element(pair, 2 * j + 1), odd));
        }
        float& sum = tile(C).sum(i, j);
        sum = flushed(flushed(sum) + flushed(even + odd));
      }
  }
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
