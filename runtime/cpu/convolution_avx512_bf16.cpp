#if defined(__x86_64__)
#include "runtime/cpu/convolution_kernel.h"
#include "runtime/cpu/multiply_pairs.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionAvx512Bf16;
const ConvolutionFunctions kConvolutionAvx512Bf16 = Convolution<float, 64, 8, 2, MultiplyPairs>::bf16_functions();

}  // namespace gcomp::runtime::cpu

#endif
