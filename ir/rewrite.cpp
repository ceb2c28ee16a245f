#include "ir/rewrite.h"

#include <algorithm>

#include "ir/ops/shown.h"

namespace gcomp::ir {
namespace {

bool is_automatic(const std::string& name) {
  for (char c : name)
    if (c < '0' || c > '9') return false;
  return true;
}

}  // namespace

int rewrite(Graph& graph, const RewriteRule& rule) {
  ValueTable<Value*> replaced(graph);
  std::vector<std::unique_ptr<Node>> old = graph.take_nodes(), retired;
  std::vector<std::pair<Value*, Value*>> names;
  const ValueSet outputs(graph, graph.outputs());
  int count = 0;
  for (std::size_t n = 0; n < old.size(); ++n) {
    NodeWalk::fetch_ahead(old.data() + n, old.data() + old.size());
    std::unique_ptr<Node>& node = old[n];
    for (Value*& operand : node->operands)
      if (Value* to = operand ? replaced.at(operand) : nullptr) operand = to;
    Builder builder(graph, node->origin);
    const std::size_t before = graph.nodes().size();
    std::optional<std::vector<Value*>> values = rule(*node, builder);
    if (!values) {
      graph.append(std::move(node));
      continue;
    }
    ++count;
    check_internal(values->size() == node->results.size(), "a rewrite of ", node->op->name, " gave ", values->size(), " values");
    auto fresh = [&](const Node* made) {
      return std::any_of(graph.nodes().begin() + static_cast<std::ptrdiff_t>(before), graph.nodes().end(),
                         [&](const auto& n) { return n.get() == made; });
    };
    for (std::size_t i = 0; i < values->size(); ++i) {
      Value* to = (*values)[i];
      check_internal(to->type == node->results[i]->type, "a rewrite of ", node->op->name, " changed ",
                     ops::shown(node->results[i]->type), " to ", ops::shown(to->type));
      replaced[node->results[i]] = to;
      if (to->producer && is_automatic(to->name) && !is_automatic(node->results[i]->name) &&
          (outputs.contains(node->results[i]) || fresh(to->producer)))
        names.emplace_back(node->results[i], to);
    }
    retired.push_back(std::move(node));
  }
  for (Value*& output : graph.outputs())
    if (Value* to = replaced.at(output)) output = to;
  for (auto& [from, to] : names)
    if (is_automatic(to->name)) graph.take_name(from, to);
  return count;
}

}  // namespace gcomp::ir
