#if defined(__x86_64__)
#include "runtime/cpu/convolution_kernel.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionAvx2, kConvolutionAvx2Widened;
const ConvolutionFunctions kConvolutionAvx2 = Convolution<float, 32, 6, 2>::functions();
const ConvolutionFunctions kConvolutionAvx2Widened = Convolution<float, 32, 6, 2>::bf16_functions();

}  // namespace gcomp::runtime::cpu

#endif
