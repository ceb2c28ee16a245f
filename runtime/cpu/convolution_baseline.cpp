#include "runtime/cpu/convolution_kernel.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionBaseline, kConvolutionBaselineWidened;
const ConvolutionFunctions kConvolutionBaseline = Convolution<float, 16, 4, 2>::functions();
const ConvolutionFunctions kConvolutionBaselineWidened = Convolution<float, 16, 4, 2>::bf16_functions();

}  // namespace gcomp::runtime::cpu
