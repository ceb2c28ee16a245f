#include "gcomp/driver/graph_index_limits.h"

#include <algorithm>
#include <set>

#include "ir/ops/table.h"

namespace gcomp::driver {
namespace {

/// Integer inputs that reach `value` through pointwise ops and views.
std::set<const ir::Value*> integer_sources(const ir::Graph& graph, const ir::Value* value) {
  std::set<const ir::Value*> sources, seen;
  std::vector<const ir::Value*> open{value};
  while (!open.empty()) {
    const ir::Value* next = open.back();
    open.pop_back();
    if (!next || !seen.insert(next).second) continue;
    if (next->producer) {
      const ir::Kind kind = next->producer->op->kind;
      if (kind != ir::Kind::pointwise && kind != ir::Kind::view) continue;
      open.insert(open.end(), next->producer->operands.begin(), next->producer->operands.end());
    } else if (is_integer(next->type.dtype) && !graph.find_state(next)) {
      sources.insert(next);
    }
  }
  return sources;
}

}  // namespace

std::vector<IndexLimit> index_limits(const ir::Graph& graph) {
  std::vector<IndexLimit> limits;
  for (const auto& node : graph.nodes()) {
    if (node->op != &ir::ops::kGather) continue;
    const std::int64_t size = node->operands[0]->type.shape[static_cast<std::size_t>(node->attributes.integer("axis"))];
    for (const ir::Value* input : integer_sources(graph, node->operands[1])) {
      const auto known = std::find_if(limits.begin(), limits.end(), [&](const IndexLimit& l) { return l.input == input->name; });
      if (known == limits.end()) limits.push_back({input->name, size});
      else known->limit = std::min(known->limit, size);
    }
  }
  return limits;
}

}  // namespace gcomp::driver
