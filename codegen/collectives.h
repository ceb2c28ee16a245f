// Steps between ranks.
#pragma once

#include "codegen/program_builder.h"
#include "ir/graph.h"

namespace gcomp::codegen {

/// The step of a node of kind collective.
void add_collective(ProgramBuilder& program, const ir::Node& node);

}  // namespace gcomp::codegen
