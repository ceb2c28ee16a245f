#include "runtime/cpu/convolution_kernel.h"

namespace gcomp::runtime::cpu {

extern const ConvolutionFunctions kConvolutionBaseline;
const ConvolutionFunctions kConvolutionBaseline = Convolution<float, 16, 4, 2>::functions();

}  // namespace gcomp::runtime::cpu
