#include "passes/training/elementwise_groups.h"

#include <algorithm>
#include <numeric>

#include "ir/ops/table.h"

namespace gcomp::passes {

using namespace ir;

bool is_spread(const Value* value) {
  if (!value->producer) return false;
  if (value->producer->op == &ops::kFull) return true;
  return value->producer->op == &ops::kBroadcast && value->producer->operands[0]->type.shape.empty();
}

bool is_extreme_of_all(const Node& node) {
  const Reduction::Of of = node.op->reduction.of;
  return node.op->kind == Kind::reduce && (of == Reduction::Of::maximum || of == Reduction::Of::minimum) &&
         node.result()->type.shape.empty();
}

std::size_t ElementwiseGroups::root(const Value* value) const {
  std::size_t at = value->number;
  while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
  return at;
}

void ElementwiseGroups::join(const Value* a, const Value* b) {
  if (!is_spread(a) && !is_spread(b)) parent_[root(a)] = root(b);
}

void ElementwiseGroups::join_node(const Node& node) {
  if (node.op->kind == Kind::update) return join(node.operands[1], node.operands[0]);
  if (node.op->kind != Kind::pointwise || node.result()->type.shape.empty()) return;
  for (const Value* operand : node.operands) join(operand, node.result());
}

/// What a node that is none of a group's reads or makes is in none.
void ElementwiseGroups::refuse_uses(const Node& node) {
  if (node.op->kind == Kind::pointwise || node.op->kind == Kind::update) return;
  for (const Value* result : node.results) elementwise_[root(result)] = 0;
  if (is_extreme_of_all(node) || node.op == &ops::kSquareSums) return;
  for (const Value* operand : node.operands)
    if (operand) elementwise_[root(operand)] = 0;
}

ElementwiseGroups::ElementwiseGroups(const Graph& graph, const std::vector<Value*>& parameters)
    : parent_(graph.numbered()), elementwise_(graph.numbered()) {
  std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  for (const Node& node : NodeWalk(graph)) join_node(node);
  std::vector<int> count(graph.numbered());
  for (const Value* parameter : parameters)
    if (!parameter->type.shape.empty() && parameter->type.elements() > 0) ++count[root(parameter)];
  for (std::size_t i = 0; i < count.size(); ++i) elementwise_[i] = count[i] == 1;
  for (const Node& node : NodeWalk(graph)) refuse_uses(node);
  for (const Value* value : graph.outputs()) elementwise_[root(value)] = 0;
  for (const Value* value : graph.inputs()) elementwise_[root(value)] = 0;
  for (const State& state : graph.states())
    if (state.role == StateRole::running_statistic || state.role == StateRole::counter) elementwise_[root(state.value)] = 0;
}

}  // namespace gcomp::passes
