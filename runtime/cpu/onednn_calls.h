// What oneDNN does for the runtime, as a table that the library gcomp::onednn brings along. A program that links gcomp::runtime
// alone has no such table, loads neither oneDNN nor what that needs, and runs convolutions and the largest products in the built-in
// kernels.
#pragma once

#include "runtime/cpu/convolution.h"
#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

struct OneDnnCalls {
  /// Null where oneDNN has no efficient form for the call.
  std::unique_ptr<LibraryCall> (*convolution)(const ConvolutionCall& call, const ConvolutionOperands& operands) = nullptr;
  /// Keeps oneDNN from instructions wider than `set`. It chooses once in a process: throws DeviceError (exit 6) where it has chosen
  /// others already.
  void (*limit)(InstructionSet set) = nullptr;
};

}  // namespace gcomp::runtime::cpu
