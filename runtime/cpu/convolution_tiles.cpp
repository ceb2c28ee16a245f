#include "runtime/cpu/convolution_tiles.h"

#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

#if defined(__x86_64__)
extern const ConvolutionFunctions kConvolutionAvx512;
extern const ConvolutionFunctions kConvolutionAvx2;
#endif
extern const ConvolutionFunctions kConvolutionBaseline;

const ConvolutionFunctions& convolution_functions(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return kConvolutionAvx512;
  if (set == InstructionSet::avx2) return kConvolutionAvx2;
#endif
  static_cast<void>(set);
  return kConvolutionBaseline;
}

const ConvolutionFunctions& convolution_functions() {
  static const ConvolutionFunctions& widest = convolution_functions(widest_instruction_set());
  return widest;
}

}  // namespace gcomp::runtime::cpu
