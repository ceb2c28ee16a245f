#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmBaseline;
const GemmFunctions kGemmBaseline{Gemm<float, 16, 4, 2>::functions(), Gemm<double, 16, 4, 2>::functions()};

}  // namespace gcomp::runtime::cpu
