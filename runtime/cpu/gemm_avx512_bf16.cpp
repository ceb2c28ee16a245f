#if defined(__x86_64__)
#include "runtime/cpu/gemm_kernel.h"
#include "runtime/cpu/multiply_pairs.h"

namespace gcomp::runtime::cpu {

extern const GemmFunction kGemmAvx512Bf16;
const GemmFunction kGemmAvx512Bf16 = Gemm<float, 64, 12, 2, MultiplyPairs>::bf16_functions();

}  // namespace gcomp::runtime::cpu

#endif
