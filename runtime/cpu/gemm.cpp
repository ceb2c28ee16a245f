#include "runtime/cpu/gemm.h"

namespace gcomp::runtime::cpu {

#if defined(__x86_64__)
extern const GemmFunctions kGemmAvx512;
extern const GemmFunctions kGemmAvx2;
#endif
extern const GemmFunctions kGemmBaseline;

const GemmFunctions* supported_gemm_functions(int index) {
  const GemmFunctions* supported[3];
  int count = 0;
#if defined(__x86_64__)
  const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  if (fma && wide) supported[count++] = &kGemmAvx512;
  if (fma) supported[count++] = &kGemmAvx2;
#endif
  supported[count++] = &kGemmBaseline;
  return index < count ? supported[index] : nullptr;
}

const GemmFunctions& gemm_functions() {
  static const GemmFunctions& best = *supported_gemm_functions(0);
  return best;
}

int64_t gemm_scratch_bytes() {
  // The largest of the kernels: 8 rows and 3 registers of 64 bytes a tile, kGemmRows x 128 of A, in elements of 8 bytes.
  return (128 * 3 * 64) + (kGemmRows + 8) * 128 * 8;
}

}  // namespace gcomp::runtime::cpu
