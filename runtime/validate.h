// The rules that every Program keeps, so that an executable may use its indices and offsets without looking again.
#pragma once

#include "runtime/program.h"

namespace gcomp::runtime {

/// Throws UserError naming the first part of `program` that breaks a rule:
/// - sizes of spaces and shapes are not negative and do not overflow; a buffer starts at a multiple of 64 inside its space and
///   ends inside it; constants carry exactly the bytes of their type, others none; names in state and io are unique;
/// - inputs and outputs are distinct io buffers each and keep the rules of their roles (ir/base/role.h), a state belongs to one
/// state buffer, every index is in range;
/// - kernel names are distinct identifiers; all segments of a launch bind equally many buffers;
/// - generated kernels of products stand in programs for CUDA only, with at most kProductParameters parameters each;
/// - every element that a matrix view or a convolution can touch lies inside its buffer, which has the call's dtype.
/// What a kernel's own text does with its buffers is not checked: programs are code.
void validate(const Program& program);

}  // namespace gcomp::runtime
