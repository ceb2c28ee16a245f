#include "passes/training/shard_statistics.h"

#include <algorithm>
#include <unordered_map>

namespace gcomp::passes {

using namespace ir;

std::optional<StatisticRule> StatisticRule::find(const Graph& graph, Value* statistic, Value* next) {
  StatisticRule rule;
  rule.statistic_ = statistic;
  rule.next_ = next;
  ValueSet moved(graph);  // depends on the statistic
  moved.insert(statistic);
  const auto is_moved = [&](const Value* value) { return value && moved.contains(value); };
  for (const Node& node : NodeWalk(graph)) {
    if (node.op->kind == Kind::update) {
      if (node.operands[0] != statistic && is_moved(node.operands[1])) return std::nullopt;
      continue;
    }
    if (!std::ranges::any_of(node.operands, is_moved)) continue;
    if (node.op->kind != Kind::pointwise || node.result()->type.shape != statistic->type.shape) return std::nullopt;
    moved.insert(node.result());
    rule.nodes_.push_back(&node);
  }
  if (!moved.contains(next) || std::ranges::any_of(graph.outputs(), is_moved)) return std::nullopt;
  for (const Node* node : rule.nodes_)
    for (Value* operand : node->operands)
      if (!moved.contains(operand) && !(operand->producer && operand->producer->op->kind == Kind::constant) &&
          std::ranges::find(rule.brought_, operand) == rule.brought_.end())
        rule.brought_.push_back(operand);
  return rule;
}

Var StatisticRule::apply(Builder& b, Var statistic, const std::vector<Var>& brought) const {
  std::unordered_map<const Value*, Var> now{{statistic_, statistic}};
  for (std::size_t i = 0; i < brought_.size(); ++i) now.emplace(brought_[i], brought[i]);
  for (const Node* node : nodes_) {
    std::vector<Var> operands;
    for (Value* operand : node->operands) {
      const auto found = now.find(operand);
      operands.push_back(found == now.end() ? b.wrap(operand) : found->second);
    }
    now.emplace(node->result(), b.apply(*node->op, std::move(operands), node->attributes));
  }
  return now.at(next_);
}

}  // namespace gcomp::passes
