#if defined(__x86_64__)
#include "runtime/cpu/convolution_kernel.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionAvx512;
const ConvolutionFunctions kConvolutionAvx512 = Convolution<float, 64, 8, 2>::functions();

}  // namespace gcomp::runtime::cpu

#endif
