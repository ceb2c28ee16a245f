#if defined(__x86_64__)
#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmAvx2;
const GemmFunctions kGemmAvx2{Gemm<float, 32, 4, 3>::run, Gemm<double, 32, 4, 3>::run};

}  // namespace gcomp::runtime::cpu

#endif
