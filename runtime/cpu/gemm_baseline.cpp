#include "runtime/cpu/gemm_kernel.h"
#include "runtime/cpu/half_lines.h"

namespace gcomp::runtime::cpu {

extern const GemmFunctions kGemmBaseline;
const GemmFunctions kGemmBaseline{Gemm<float, 16, 4, 2>::functions(), Gemm<double, 16, 4, 2>::functions(),
                                  Gemm<float, 16, 4, 2>::bf16_functions(), half_lines()};

}  // namespace gcomp::runtime::cpu
