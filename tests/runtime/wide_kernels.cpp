#if defined(__x86_64__)
#include "tests/runtime/wide_kernels.h"

#include "runtime/cpu/convolution_kernel.h"
#include "runtime/cpu/gemm_kernel.h"

namespace gcomp::runtime::cpu {

const GemmFunctions& wide_gemm_functions() {
  static const GemmFunctions functions{Gemm<float, 64, 12, 2>::functions(), Gemm<double, 64, 12, 2>::functions()};
  return functions;
}

const ConvolutionFunctions& wide_convolution_functions() {
  static const ConvolutionFunctions functions = Convolution<float, 64, 8, 2>::functions();
  return functions;
}

}  // namespace gcomp::runtime::cpu

#endif
