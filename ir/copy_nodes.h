// The nodes of one graph within another.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

/// Appends a copy of each node of `from`, none of which is a kernel; types are inferred anew. `values` has what inputs and states
/// stand for, and afterwards what results do.
inline void append_copies(Graph& to, const Graph& from, std::unordered_map<const Value*, Value*>& values) {
  for (const auto& node : from.nodes()) {
    std::vector<Value*> operands;
    for (const Value* operand : node->operands) operands.push_back(operand ? values.at(operand) : nullptr);
    const Node* copy = to.append(*node->op, std::move(operands), node->attributes, node->origin);
    for (std::size_t i = 0; i < node->results.size(); ++i) values[node->results[i]] = copy->results[i];
  }
}

}  // namespace gcomp::ir
