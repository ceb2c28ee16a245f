// Kernels that differ only in where they start reading an operand become one: the constant part of the position moves out of the
// nest into the buffer's offset. Unrolled time steps, which read slices of one array, so share their text.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/base/tensor.h"
#include "ir/nest/term.h"

namespace gcomp::codegen {

struct Rebased {
  ir::LoopNest nest;
  std::vector<TensorType> operands;        ///< a moved operand is read as a flat array
  std::vector<std::int64_t> byte_offsets;  ///< added to the place of each operand; a multiple of 64
};

/// Moves the start of every operand that `movable` marks and whose reads all begin at least 64 bytes in.
Rebased rebase(const ir::LoopNest& nest, const std::vector<TensorType>& operands, const std::vector<bool>& movable);

}  // namespace gcomp::codegen
