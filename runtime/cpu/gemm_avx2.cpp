#if defined(__x86_64__)
#include "runtime/cpu/gemm_kernel.h"
#include "runtime/cpu/half_lines.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmAvx2;
const GemmFunctions kGemmAvx2{Gemm<float, 32, 6, 2>::functions(), Gemm<double, 32, 6, 2>::functions(),
                              Gemm<float, 32, 6, 2>::bf16_functions(), half_lines()};

}  // namespace gcomp::runtime::cpu

#endif
