#if defined(__x86_64__)
#include "runtime/cpu/convolution_kernel.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionAvx512, kConvolutionAvx512Widened;
const ConvolutionFunctions kConvolutionAvx512 = Convolution<float, 64, 8, 2>::functions();
const ConvolutionFunctions kConvolutionAvx512Widened = Convolution<float, 64, 8, 2>::bf16_functions();

}  // namespace gcomp::runtime::cpu

#endif
