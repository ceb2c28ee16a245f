// Contractions as library calls.
#pragma once

#include <functional>
#include <optional>

#include "ir/graph.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// The index of the buffer that holds a value.
using BufferOf = std::function<int(const ir::Value*)>;

/// The call that computes a node of kind contract; none where the target's libraries have no such call: integers, half
/// precision on the CPU, more than three spatial dimensions, no elements.
std::optional<runtime::Step> library_call(const ir::Node& node, runtime::TargetKind target, const BufferOf& buffer_of);

}  // namespace gcomp::codegen
