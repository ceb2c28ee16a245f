// The numbers by which draws of random values are told apart, as operands of their kernels: layers that drop alike share a text.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/nest/term.h"

namespace gcomp::codegen {

/// Replaces each distinct number that `nest` holds as a literal by a read of an operand of its own, i64[], behind `operands`
/// others; returns the numbers in the order of their operands.
std::vector<std::int64_t> take_draw_numbers(ir::LoopNest& nest, std::size_t operands);

}  // namespace gcomp::codegen
