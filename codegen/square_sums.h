// The launch of a square_sums node: one kernel over all its operands, each a segment of its own, whose tasks are the blocks of
// ir/square_sums.h. The order of each sum follows from the sizes alone.
#pragma once

#include <string>

#include "codegen/program_builder.h"
#include "ir/graph.h"

namespace gcomp::codegen {

/// Adds the launch. `text` is the target's kernel for elements of the operands' type, `threads` those of a CUDA block of it, which
/// sums one block.
void add_square_sums(ProgramBuilder& program, const ir::Node& node, const std::string& text, int threads);

}  // namespace gcomp::codegen
