// Contractions as library calls.
#pragma once

#include <functional>
#include <optional>

#include "ir/graph.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// The index of the buffer that holds a value.
using BufferOf = std::function<int(const ir::Value*)>;

/// The matmul of a node's first two operands into `result`, with the node's transposes. The dtype is a float.
runtime::MatmulCall matmul_call(const ir::Node& node, const ir::Value* result, const BufferOf& buffer_of);

/// The call that computes a node of kind contract; none where no library has such a call: more than three spatial dimensions, no
/// elements. Which dtypes there are calls for is the target's to know.
std::optional<runtime::Step> library_call(const ir::Node& node, const BufferOf& buffer_of);

}  // namespace gcomp::codegen
