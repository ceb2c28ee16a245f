// Expansion of composites into the ops that define them.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace gcomp::ir {

/// Replaces every composite that `which` accepts (all by default) by its expansion, until none is left. True if any was.
bool expand(Graph& graph, const std::function<bool(const Node&)>& which = {});

}  // namespace gcomp::ir
