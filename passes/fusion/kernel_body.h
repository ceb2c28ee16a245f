// The nest of a kernel while a pass rewrites it.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// A nest and the operand behind each slot.
struct Body {
  ir::LoopNest nest;
  std::vector<ir::Value*> operands;

  /// Drops statements that no output needs, then operands that no statement reads.
  void prune();
};

/// Whether any term or store looks an index up in memory, or a store adds to what is there.
bool looks_up(const ir::LoopNest& nest);

/// The kernel with each sum of `sum` and `bias`, a vector along the last axis, as a read of a new last operand, which is null;
/// nothing where the kernel reads `sum` otherwise.
std::optional<Body> with_preactivation(const ir::Node& kernel, const ir::Value* sum, const ir::Value* bias);

}  // namespace gcomp::passes
