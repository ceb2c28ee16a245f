#if defined(__x86_64__)
#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmAvx2;
const GemmFunctions kGemmAvx2{Gemm<float, 32, 6, 2>::functions(), Gemm<double, 32, 6, 2>::functions()};

}  // namespace gcomp::runtime::cpu

#endif
