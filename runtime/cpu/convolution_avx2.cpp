#if defined(__x86_64__)
#include "runtime/cpu/convolution_kernel.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionAvx2;
const ConvolutionFunctions kConvolutionAvx2 = Convolution<float, 32, 6, 2>::functions();

}  // namespace gcomp::runtime::cpu

#endif
