// Which composites code generation takes as they are: what PipelineOptions::whole asks.
#pragma once

#include "ir/graph.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// True where `target` has kernels for a node of kind composite. The CPU has none: there the expansion is as fast.
bool takes_whole(const ir::Node& node, const runtime::Target& target);

}  // namespace gcomp::codegen
