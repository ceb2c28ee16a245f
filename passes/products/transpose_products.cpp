#include "passes/products/transpose_products.h"

#include <algorithm>

#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Products that nothing reads but transposes of their matrices.
ValueSet transposed_products(const Graph& graph) {
  const Users users(graph);
  const ValueSet outputs(graph, graph.outputs());
  ValueSet found(graph);
  for (const Node& node : NodeWalk(graph)) {
    if (node.op != &ops::kMatmul || has_views(node.attributes) || outputs.contains(node.result())) continue;
    const auto readers = users.of(node.result());
    if (!readers.empty() && std::ranges::all_of(readers, [](const Node* reader) {
          return !reader->results.empty() && swaps_last(reader->results[0]);  // an update has none
        }))
      found.insert(node.result());
  }
  return found;
}

}  // namespace

bool transpose_products(Graph& graph) {
  const ValueSet transposed = transposed_products(graph);
  const int changed = rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
    if (node.op != &ops::kTranspose || !transposed.contains(node.operands[0])) return std::nullopt;
    const Node& product = *node.operands[0]->producer;
    const Attributes all = with_defaults(*product.op, product.attributes);
    return std::vector{
        b.matmul(b.wrap(product.operands[1]), b.wrap(product.operands[0]), !all.flag("transpose_b"), !all.flag("transpose_a"))
            .value};
  });
  if (changed > 0) graph.remove_dead();
  return changed > 0;
}

}  // namespace gcomp::passes
