#if defined(__x86_64__)
#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmAvx512;
const GemmFunctions kGemmAvx512{Gemm<float, 64, 8, 3>::run, Gemm<double, 64, 8, 3>::run};

}  // namespace gcomp::runtime::cpu

#endif
