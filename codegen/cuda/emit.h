// A loop nest as the CUDA text of one kernel,
//   extern "C" __global__ void NAME(const T0* p0, ..., Tn* pn, int* fault)
// p0 ...: operands, then results. A kernel of variable length takes (const SegmentTable*, int* fault) instead; see
// prelude/memory.h. An operand may share memory with a result where both are accessed at the same element. Sums run in fixed
// trees and nothing is added atomically: a launch gives the same bits each time.
#pragma once

#include "codegen/kernel.h"

namespace gcomp::codegen::cuda {

/// A pure function of the nest and the types, the same for all architectures. Sets `grid`; for a variable length `task_length`,
/// the elements of one block.
EmittedKernel emit(const KernelSource& source);

/// Definitions that every emitted text uses.
const char* prelude();

}  // namespace gcomp::codegen::cuda
