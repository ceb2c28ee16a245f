#if defined(__x86_64__)
#include "runtime/cpu/gemm_kernel.h"
#include "runtime/cpu/half_lines.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmAvx512;
const GemmFunctions kGemmAvx512{Gemm<float, 64, 12, 2, MultiplyAddInPlace>::functions(),
                                Gemm<double, 64, 12, 2, MultiplyAddInPlace>::functions(),
                                Gemm<float, 64, 12, 2, MultiplyAddInPlace>::bf16_functions(), half_lines()};

}  // namespace gcomp::runtime::cpu

#endif
