#include "runtime/cpu/gemm.h"

namespace gcomp::runtime::cpu {

#if defined(__x86_64__)
extern const GemmFunctions kGemmAvx512;
extern const GemmFunctions kGemmAvx2;
#endif
extern const GemmFunctions kGemmBaseline;

const GemmFunctions& gemm_functions() {
#if defined(__x86_64__)
  static const GemmFunctions& chosen = [&]() -> const GemmFunctions& {
    const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (fma && wide) return kGemmAvx512;
    return fma ? kGemmAvx2 : kGemmBaseline;
  }();
  return chosen;
#else
  return kGemmBaseline;
#endif
}

int64_t gemm_scratch_bytes() {
  // The largest of the kernels: 8 rows and 3 registers of 64 bytes a tile, kGemmRows x 128 of A, in elements of 8 bytes.
  return (128 * 3 * 64) + (kGemmRows + 8) * 128 * 8;
}

}  // namespace gcomp::runtime::cpu
