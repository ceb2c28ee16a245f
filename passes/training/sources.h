// What a value is made of.
#pragma once

#include <concepts>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// The values without a producer behind `value`, looked for through all values but those that `ends` is true of.
template <std::predicate<const ir::Value*> Ends>
std::vector<const ir::Value*> sources_of(const ir::Graph& graph, const ir::Value* value, Ends ends) {
  ir::ValueSet seen(graph);
  std::vector<const ir::Value*> sources, left{value};
  while (!left.empty()) {
    const ir::Value* next = left.back();
    left.pop_back();
    if (!seen.insert(next)) continue;
    if (!next->producer) sources.push_back(next);
    else if (!ends(next)) left.insert(left.end(), next->producer->operands.begin(), next->producer->operands.end());
  }
  return sources;
}

}  // namespace gcomp::passes
