#include "ir/expand.h"

#include "ir/matrices.h"
#include "ir/rewrite.h"

namespace gcomp::ir {

bool expand(Graph& graph, const std::function<bool(const Node&)>& which) {
  bool any = false;
  while (rewrite(graph, [&](Node& node, Builder& builder) -> std::optional<std::vector<Value*>> {
    if (node.op->kind != Kind::composite || (which && !which(node))) return std::nullopt;
    ExpandContext context(builder, node, with_defaults(*node.op, node.attributes));
    return stored(builder, node, node.op->expand(context));
  }))
    any = true;
  return any;
}

}  // namespace gcomp::ir
