#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmBaseline;
const GemmFunctions kGemmBaseline{Gemm<float, 16, 4, 2>::functions(), Gemm<double, 16, 4, 2>::functions(),
                                  /*before_library=*/false};

}  // namespace gcomp::runtime::cpu
