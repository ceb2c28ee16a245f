#include "ir/rewrite.h"

#include <unordered_set>

namespace gcomp::ir {
namespace {

bool is_automatic(const std::string& name) {
  for (char c : name)
    if (c < '0' || c > '9') return false;
  return true;
}

}  // namespace

int rewrite(Graph& graph, const RewriteRule& rule) {
  std::unordered_map<Value*, Value*> replaced;
  std::vector<std::unique_ptr<Node>> old = graph.take_nodes(), retired;
  std::vector<std::pair<Value*, Value*>> names;
  const std::unordered_set<const Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  int count = 0;
  for (auto& node : old) {
    for (Value*& operand : node->operands)
      if (auto it = replaced.find(operand); it != replaced.end()) operand = it->second;
    Builder builder(graph, node->origin);
    const std::size_t before = graph.nodes().size();
    std::optional<std::vector<Value*>> values = rule(*node, builder);
    if (!values) {
      graph.append(std::move(node));
      continue;
    }
    ++count;
    check_internal(values->size() == node->results.size(), "a rewrite of ", node->op->name, " gave ", values->size(), " values");
    std::unordered_set<const Node*> fresh;
    for (std::size_t i = before; i < graph.nodes().size(); ++i) fresh.insert(graph.nodes()[i].get());
    for (std::size_t i = 0; i < values->size(); ++i) {
      Value* to = (*values)[i];
      check_internal(to->type == node->results[i]->type, "a rewrite of ", node->op->name, " changed ",
                     to_string(node->results[i]->type), " to ", to_string(to->type));
      replaced[node->results[i]] = to;
      const bool named = fresh.count(to->producer) || (to->producer && outputs.count(node->results[i]));
      if (named && is_automatic(to->name) && !is_automatic(node->results[i]->name)) names.emplace_back(node->results[i], to);
    }
    retired.push_back(std::move(node));
  }
  for (Value*& output : graph.outputs())
    if (auto it = replaced.find(output); it != replaced.end()) output = it->second;
  for (auto& [from, to] : names)
    if (is_automatic(to->name)) graph.take_name(from, to);
  return count;
}

}  // namespace gcomp::ir
