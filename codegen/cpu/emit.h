// A loop nest as the C++ text of one function,
//   extern "C" void NAME(void* const* p, long extent, long first, long last, int* fault)
// p: operands, then results. It does tasks first to last - 1 of the kernel; each task writes its own elements. Operands may share
// memory with a result where both are accessed at the same element, so all reads of an element come before its writes.
#pragma once

#include "codegen/kernel.h"

namespace gcomp::codegen::cpu {

/// A pure function of the nest and the types. The number of tasks follows from shapes, never from the machine.
EmittedKernel emit(const KernelSource& source);

/// Definitions that every emitted text uses.
std::string prelude();

}  // namespace gcomp::codegen::cpu
