#include "frontend/onnx/constant_folding.h"

#include <algorithm>
#include <cmath>

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
    case ir::Kind::barrier:
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

/// Views of constants and what fills an array with one number are part of whatever reads them.
bool costs_time(const std::vector<const ir::Node*>& needed) {
  return std::any_of(needed.begin(), needed.end(),
                     [](const ir::Node* node) { return node->op->kind != ir::Kind::constant && node->op->kind != ir::Kind::view; });
}

}  // namespace

std::optional<std::string> FoldBudget::excess(std::int64_t bytes, std::int64_t largest, double points) const {
  if (largest > each_) return concat(largest, " bytes in one tensor, more than ", each_);
  if (bytes > bytes_) return concat(bytes, " bytes beside ", limit_ - bytes_, " of others, together more than ", limit_);
  if (points > static_cast<double>(points_))
    return concat(std::llround(std::min(points, 1e18)), " evaluations, more than the ", points_, " that are left");
  return std::nullopt;
}

void FoldBudget::take(std::int64_t bytes, double points) {
  points_ -= static_cast<std::int64_t>(points);
  if (points > 0) bytes_ -= bytes;
}

void FoldBudget::refuse(const ir::Node& node, const std::string& excess) {
  if (refused_.insert(node.origin).second && first_.empty())
    first_ = concat("what node '", node.origin, "' makes depends on no input and is computed in each run: it takes ", excess);
}

std::optional<std::string> FoldBudget::note() const {
  if (refused_.empty()) return std::nullopt;
  const std::string others = refused_.size() > 1 ? concat(" (and so for ", refused_.size() - 1, " more)") : "";
  return concat(first_, others, advice());
}

std::string FoldBudget::advice() const { return concat("; --max-folded-bytes N above ", limit_, " allows more"); }

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

ConstantFolder::Needed ConstantFolder::needed_for(const ir::Value* value) const {
  std::vector<const ir::Node*> open{value->producer}, needed;
  std::unordered_set<const ir::Node*> seen{value->producer};
  while (!open.empty()) {
    const ir::Node* node = open.back();
    open.pop_back();
    if (const auto refused = refused_.find(node); refused != refused_.end()) return {{}, refused->second};
    needed.push_back(node);
    for (const ir::Value* operand : node->operands)
      if (operand && !known_.count(operand) && seen.insert(operand->producer).second) open.push_back(operand->producer);
  }
  std::sort(needed.begin(), needed.end(), [&](auto* a, auto* b) { return constant_.at(a) < constant_.at(b); });
  return {std::move(needed)};
}

const std::string* ConstantFolder::excess_of(const ir::Value* value) const {
  const auto refused = refused_.find(value->producer);
  return refused == refused_.end() ? nullptr : refused->second.get();
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
    const auto held = [](const Tensor* tensor) { return !tensor || ir::doubles_hold(*tensor); };
    if (!std::ranges::all_of(operands, held) || !std::ranges::all_of(results, ir::doubles_hold)) return nullptr;
    for (std::size_t i = 0; i < results.size(); ++i) made[node->results[i]] = std::make_shared<const Tensor>(std::move(results[i]));
  }
  return made.at(value);
}

std::shared_ptr<const Tensor> ConstantFolder::value_of(const ir::Value* value) {
  if (auto it = known_.find(value); it != known_.end()) return it->second;
  if (!is_constant(value)) return nullptr;
  const Needed needed = needed_for(value);
  if (needed.excess) {
    refused_.emplace(value->producer, needed.excess);
    return nullptr;
  }
  double points = 0;
  std::int64_t largest = 0;
  for (const ir::Node* node : needed.nodes) {
    if (dense(*node)) continue;
    points += points_of(*node);
    for (const ir::Value* result : node->results) largest = std::max(largest, result->type.bytes());
  }
  if (const auto excess = budget_.excess(value->type.bytes(), largest, points)) {
    refused_.emplace(value->producer,
                     std::make_shared<std::string>(concat(" is more than is computed in advance: node '", value->producer->origin,
                                                          "' takes ", *excess, budget_.advice())));
    if (costs_time(needed.nodes)) budget_.refuse(*value->producer, *excess);
    return nullptr;
  }
  budget_.take(value->type.bytes(), points);
  std::shared_ptr<const Tensor> made = evaluate(needed.nodes, value);
  if (made) return known_[value] = std::move(made);
  refused_.emplace(value->producer,
                   std::make_shared<std::string>(concat(" is not computed in advance: node '", value->producer->origin,
                                                        "' computes with integers from 2^53 on")));
  return nullptr;
}

}  // namespace gcomp::frontend
