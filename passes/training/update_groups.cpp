#include "passes/training/update_groups.h"

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

namespace {

/// What ranks can know of all parts of a value by asking each for little.
bool asks_all(const Node& node) { return node.op == &ops::kSquareSums || is_extreme_of_all(node); }

bool is_of_one_parameter(const State& state) {
  return state.role != StateRole::running_statistic && state.role != StateRole::counter && !state.value->type.shape.empty();
}

}  // namespace

std::size_t UpdateGroups::root(std::size_t number) const {
  while (parent_[number] != number) number = parent_[number] = parent_[parent_[number]];
  return number;
}

void UpdateGroups::join(std::size_t a, std::size_t b) { parent_[root(a)] = root(b); }

std::size_t UpdateGroups::group_of(const Value* value) const { return is_grouped(value) ? root(value->number) : kNone; }

Division UpdateGroups::division_of(const Value* value) const {
  if (!is_grouped(value)) return Division::none;
  const Group& group = groups_[root(value->number)];
  return group.parameters == 1 ? group.division : Division::none;
}

void UpdateGroups::find_groups(const Graph& graph) {
  for (const State& state : graph.states()) grouped_[state.value->number] = is_of_one_parameter(state);
  for (const Node& node : NodeWalk(graph)) {
    if (node.op->kind == Kind::update) {
      const Value *state = node.operands[0], *value = node.operands[1];
      if (is_grouped(state) && is_grouped(value)) join(value->number, state->number);
      continue;
    }
    if (asks_all(node)) continue;
    std::size_t joined = kNone;
    for (const Value* operand : node.operands) {
      if (!operand || !is_grouped(operand)) continue;
      if (joined != kNone) join(operand->number, joined);
      joined = operand->number;
    }
    if (joined == kNone) continue;
    for (const Value* result : node.results) {
      grouped_[result->number] = true;
      join(result->number, joined);
    }
  }
}

/// Which values are made of a parameter and its gradient alone, element by element, or in a group of elements of anything.
void UpdateGroups::find_parts(const Graph& graph) {
  const auto is_whole = [&](const Value* value) { return division_of(value) == Division::owner; };
  for (const State& state : graph.states()) {
    const Division division = division_of(state.value);
    const bool is_root = state.role == StateRole::parameter || state.role == StateRole::scratch;
    in_parts_[state.value->number] = division == Division::elements || (division == Division::owner && is_root);
  }
  for (const Node& node : NodeWalk(graph)) {
    if (node.op->kind != Kind::pointwise || division_of(node.result()) == Division::none || is_spread(node.result())) continue;
    const bool from_parts = std::ranges::all_of(
        node.operands, [&](const Value* operand) { return is_in_parts(operand) || (is_spread(operand) && !is_grouped(operand)); });
    in_parts_[node.result()->number] = !is_whole(node.result()) || from_parts;
  }
}

/// Of a group that the node reads or makes something of: whether it can still be divided, and how.
void UpdateGroups::divide(const Node& node) {
  if (node.op->kind == Kind::update) {
    if (is_grouped(node.operands[0]) != is_grouped(node.operands[1])) refuse(node.operands[is_grouped(node.operands[0]) ? 0 : 1]);
    return;
  }
  if (asks_all(node)) return;
  const Value* of_group = nullptr;
  bool by_elements = node.op->kind == Kind::pointwise;
  for (const Value* operand : node.operands) {
    if (operand && is_grouped(operand)) of_group = operand;
    else if (operand) by_elements = by_elements && is_spread(operand);
  }
  if (!of_group) return;
  by_elements = by_elements && !node.result()->type.shape.empty();
  Group& group = of(of_group);
  if (!by_elements && group.division == Division::elements) group.division = Division::owner;
  if (node.op->kind == Kind::collective) group.division = Division::none;
}

void UpdateGroups::refuse(const Value* value) {
  if (is_grouped(value)) of(value).division = Division::none;
}

UpdateGroups::UpdateGroups(const Graph& graph, const std::vector<Value*>& parameters)
    : parent_(graph.numbered()), grouped_(graph.numbered()), in_parts_(graph.numbered()), groups_(graph.numbered()) {
  std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  find_groups(graph);
  for (const Value* parameter : parameters)
    if (is_grouped(parameter) && parameter->type.elements() > 0) ++of(parameter).parameters;
  for (const Node& node : NodeWalk(graph)) divide(node);
  for (const Value* value : graph.outputs()) refuse(value);
  find_parts(graph);
  // What of an owner's is asked of all ranks, but cannot be had in parts, is had by all.
  for (const Node& node : NodeWalk(graph))
    if (asks_all(node))
      for (const Value* operand : node.operands)
        if (!is_in_parts(operand)) refuse(operand);
  std::ranges::fill(in_parts_, false);
  find_parts(graph);
}

}  // namespace gcomp::passes
