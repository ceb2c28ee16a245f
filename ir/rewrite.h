// The one driver of local rewrites: walks nodes in order, lets a rule replace each, keeps names.
#pragma once

#include <functional>
#include <optional>

#include "ir/builder.h"

namespace gcomp::ir {

/// Sees a node whose operands are already rewritten; gives one replacement for each result (built with the builder, or any
/// earlier value), or nothing to keep the node.
using RewriteRule = std::function<std::optional<std::vector<Value*>>(Node&, Builder&)>;

/// Applies the rule to every node once, in order; nodes that the rule builds are not visited. A replacement that was built
/// without a name takes the name of the value it replaces; so does, of an output, an older one without a name. Returns how many
/// nodes were replaced.
int rewrite(Graph& graph, const RewriteRule& rule);

}  // namespace gcomp::ir
