#include "frontend/onnx/constant_folding.h"

#include <algorithm>

#include "ir/base/error.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

bool is_pure(const ir::Node& node) {
  switch (node.op->kind) {
    case ir::Kind::constant:
    case ir::Kind::pointwise:
    case ir::Kind::reduce:
    case ir::Kind::contract:
    case ir::Kind::view:
    case ir::Kind::index:
    case ir::Kind::scan:
    case ir::Kind::composite: return true;
    case ir::Kind::random:
    case ir::Kind::update:
    case ir::Kind::collective:
    case ir::Kind::kernel: break;
  }
  return false;
}

/// The tensor of a dense constant, shared; null for any other node.
std::shared_ptr<const Tensor> dense(const ir::Node& node) {
  return node.op == &ir::ops::kConstant ? std::get<std::shared_ptr<const Tensor>>(*node.attributes.find("value")) : nullptr;
}

/// Evaluations of loop bodies that computing the node takes; of a composite, about as many for each of its steps.
double points_of(const ir::Node& node) {
  constexpr double kStepsOfComposite = 8;
  double points = 0;
  for (const ir::Value* result : node.results) points += static_cast<double>(result->type.elements());
  for (const ir::Value* operand : node.operands)
    if (operand && node.op->kind != ir::Kind::view && node.op != &ir::ops::kGather)
      points = std::max(points, static_cast<double>(operand->type.elements()));
  if (node.op->kind == ir::Kind::contract) points *= std::max(1.0, static_cast<double>(node.operands[1]->type.elements()));
  return node.op->kind == ir::Kind::composite ? kStepsOfComposite * points : points;
}

}  // namespace

bool ConstantFolder::is_constant(const ir::Value* value) {
  const auto& nodes = graph_.nodes();
  for (; classified_ < nodes.size(); ++classified_) {
    const ir::Node& node = *nodes[classified_];
    const bool constant = is_pure(node) && std::all_of(node.operands.begin(), node.operands.end(), [&](const ir::Value* operand) {
                            return !operand || (operand->producer && constant_.count(operand->producer));
                          });
    if (constant) constant_.emplace(&node, classified_);
  }
  return value->producer && constant_.count(value->producer);
}

std::optional<std::vector<const ir::Node*>> ConstantFolder::needed_for(const ir::Value* value) const {
  std::vector<const ir::Node*> open{value->producer}, needed;
  std::unordered_set<const ir::Node*> seen{value->producer};
  while (!open.empty()) {
    const ir::Node* node = open.back();
    open.pop_back();
    if (refused_.count(node)) return std::nullopt;
    needed.push_back(node);
    for (const ir::Value* operand : node->operands)
      if (operand && !known_.count(operand) && seen.insert(operand->producer).second) open.push_back(operand->producer);
  }
  std::sort(needed.begin(), needed.end(), [&](auto* a, auto* b) { return constant_.at(a) < constant_.at(b); });
  return needed;
}

std::shared_ptr<const Tensor> ConstantFolder::evaluate(const std::vector<const ir::Node*>& needed, const ir::Value* value) const {
  std::unordered_map<const ir::Value*, std::shared_ptr<const Tensor>> made;
  const auto tensor_of = [&](const ir::Value* v) { return made.count(v) ? made.at(v) : known_.at(v); };
  for (const ir::Node* node : needed) {
    if (auto shared = dense(*node)) {
      made[node->results[0]] = std::move(shared);
      continue;
    }
    std::vector<const Tensor*> operands;
    for (const ir::Value* operand : node->operands) operands.push_back(operand ? tensor_of(operand).get() : nullptr);
    std::vector<Tensor> results;
    try {
      results = ir::evaluate(*node, operands);
    } catch (const UserError& error) {
      throw UserError(concat(node->op->name, " of '", node->origin, "': ", error.what()), error.code());
    }
    for (std::size_t i = 0; i < results.size(); ++i) made[node->results[i]] = std::make_shared<const Tensor>(std::move(results[i]));
  }
  return made.at(value);
}

std::shared_ptr<const Tensor> ConstantFolder::value_of(const ir::Value* value) {
  if (auto it = known_.find(value); it != known_.end()) return it->second;
  if (!is_constant(value)) return nullptr;
  const auto needed = needed_for(value);
  double points = 0;
  bool fits = needed && value->type.bytes() <= budget_.bytes;
  for (std::size_t i = 0; fits && i < needed->size(); ++i) {
    const ir::Node& node = *(*needed)[i];
    if (dense(node)) continue;
    points += points_of(node);
    fits = points <= static_cast<double>(budget_.points) &&
           std::all_of(node.results.begin(), node.results.end(),
                       [](const ir::Value* result) { return result->type.bytes() <= kMostFoldedBytes; });
  }
  if (!fits) {
    refused_.insert(value->producer);
    return nullptr;
  }
  budget_.points -= static_cast<std::int64_t>(points);
  if (points > 0) budget_.bytes -= value->type.bytes();
  return known_[value] = evaluate(*needed, value);
}

}  // namespace gcomp::frontend
