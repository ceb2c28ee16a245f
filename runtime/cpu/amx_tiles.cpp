#if defined(__x86_64__)
#include <immintrin.h>

#include "runtime/cpu/amx_kernel.h"

namespace gcomp::runtime::cpu {
namespace {

/// The registers of AMX. The compilers' own functions for them do not say that they read memory.
struct AmxTiles {
  struct alignas(64) Shapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };

  static void begin() {
    Shapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.row_bytes[tile] = 64, shapes.rows[tile] = kTileLines;
    asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  }
  static void end() { asm volatile("tilerelease" : : : "memory"); }

  template <int T>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  static void load(const void* from, int64_t row) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row), "i"(T) : "memory");
  }
  template <int T>
  static void store(void* to, int64_t row) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  static void add_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }

  static void narrow(const float* from, uint16_t* to, int64_t count) {
    constexpr int64_t kLanes = 16;
    for (int64_t i = 0; i < count; i += kLanes) {
      const __mmask16 lanes = count - i >= kLanes ? 0xffff : static_cast<__mmask16>((1U << (count - i)) - 1);
      const __m512 values = _mm512_maskz_loadu_ps(lanes, from + i);
      const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
      const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values));
      _mm256_mask_storeu_epi16(to + i, lanes, _mm256_mask_blend_epi16(nan, rounded, _mm256_set1_epi16(0x7fc0)));
    }
  }
};

}  // namespace

extern const TileFunctions kAmxTiles;
const TileFunctions kAmxTiles = TileKernel<AmxTiles>::functions();

}  // namespace gcomp::runtime::cpu

#endif
