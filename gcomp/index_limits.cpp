#include "gcomp/index_limits.h"

#include <algorithm>
#include <set>

namespace gcomp {
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
    if (node->op->name != "gather") continue;
    const std::int64_t size = node->operands[0]->type.shape[static_cast<std::size_t>(node->attributes.integer("axis"))];
    for (const ir::Value* input : integer_sources(graph, node->operands[1])) {
      const auto known = std::find_if(limits.begin(), limits.end(), [&](const IndexLimit& l) { return l.input == input->name; });
      if (known == limits.end()) limits.push_back({input->name, size});
      else known->limit = std::min(known->limit, size);
    }
  }
  return limits;
}

std::string to_string(const IndexFault& fault) {
  return concat("input '", fault.input, "', row ", fault.row, ": index ", fault.value, ", wanted ", -fault.limit, " to ",
                fault.limit - 1);
}

std::optional<IndexFault> find_index_fault(const IndexLimit& limit, const TensorType& type, std::span<const std::byte> elements) {
  const std::int64_t count = type.elements();
  const std::int64_t row = type.shape.empty() || type.shape[0] == 0 ? 1 : std::max<std::int64_t>(1, count / type.shape[0]);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::int64_t>(load_as_double(type.dtype, elements.data(), i));
    if (value < -limit.limit || value >= limit.limit) return IndexFault{limit.input, i / row, value, limit.limit};
  }
  return std::nullopt;
}

}  // namespace gcomp
