#include "runtime/cpu/convolution_tiles.h"

#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

#if defined(__x86_64__)
extern const ConvolutionFunctions kConvolutionAvx512, kConvolutionAvx512Widened, kConvolutionAvx512Bf16;
extern const ConvolutionFunctions kConvolutionAvx2, kConvolutionAvx2Widened;
#endif
extern const ConvolutionFunctions kConvolutionBaseline, kConvolutionBaselineWidened;

const ConvolutionFunctions& convolution_functions(InstructionSet set) {
#if defined(__x86_64__)
  if (vectors_of(set) == InstructionSet::avx512) return kConvolutionAvx512;
  if (set == InstructionSet::avx2) return kConvolutionAvx2;
#endif
  static_cast<void>(set);
  return kConvolutionBaseline;
}

const ConvolutionFunctions& bf16_convolution_functions(InstructionSet set) {
#if defined(__x86_64__)
  static const bool pairs = has_bf16_products();
  if (vectors_of(set) == InstructionSet::avx512) return pairs ? kConvolutionAvx512Bf16 : kConvolutionAvx512Widened;
  if (set == InstructionSet::avx2) return kConvolutionAvx2Widened;
#endif
  static_cast<void>(set);
  return kConvolutionBaselineWidened;
}

const ConvolutionFunctions& convolution_functions() {
  static const ConvolutionFunctions& widest = convolution_functions(widest_instruction_set());
  return widest;
}

}  // namespace gcomp::runtime::cpu
