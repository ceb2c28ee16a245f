#include "passes/attention_mask.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "ir/interpret.h"
#include "ir/ops/table.h"

namespace gcomp::passes {

using namespace ir;

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Equal computations from constants.
bool computes_the_same(const Value* a, const Value* b) {
  if (a == b) return true;
  if (!a || !b || !a->producer || !b->producer || a->type != b->type || a->index != b->index) return false;
  const Node &x = *a->producer, &y = *b->producer;
  return x.op == y.op && x.op->kind != Kind::random && x.attributes == y.attributes && x.operands.size() == y.operands.size() &&
         std::equal(x.operands.begin(), x.operands.end(), y.operands.begin(), computes_the_same);
}

Tensor evaluate_constant(const Value* value, std::unordered_map<const Value*, Tensor>& known) {
  if (auto it = known.find(value); it != known.end()) return it->second;
  const Node& node = *value->producer;
  std::vector<Tensor> operands;
  for (const Value* operand : node.operands) operands.push_back(evaluate_constant(operand, known));
  std::vector<const Tensor*> pointers;
  for (const Tensor& operand : operands) pointers.push_back(&operand);
  Tensor made = evaluate(node, pointers)[at(value->index)];
  known.emplace(value, made);
  return made;
}

/// Along which axes the elements differ.
std::vector<bool> varying_axes_of(const Tensor& tensor) {
  std::vector<bool> axes;
  std::size_t block = tensor.bytes().size();
  for (const std::int64_t size : tensor.shape()) {
    // A block lies within a block of the axis before, and repeats if all of that but its end is all of it but its beginning.
    const std::size_t whole = std::exchange(block, block / static_cast<std::size_t>(std::max<std::int64_t>(size, 1)));
    bool varies = false;
    for (std::size_t first = 0; first < tensor.bytes().size() && !varies; first += whole)
      varies = std::memcmp(tensor.bytes().data() + first, tensor.bytes().data() + first + block, whole - block) != 0;
    axes.push_back(varies);
  }
  return axes;
}

}  // namespace

bool MaskAnalysis::is_trained(const Value* mask) {
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> open{mask};
  while (!open.empty()) {
    const Value* value = open.back();
    open.pop_back();
    if (!value || !seen.insert(value).second) continue;
    const State* state = graph_->find_state(value);
    if (state && state->role == StateRole::parameter) return true;
    if (value->producer) open.insert(open.end(), value->producer->operands.begin(), value->producer->operands.end());
  }
  return false;
}

std::vector<bool> MaskAnalysis::varying_axes(const Value* value) {
  if (auto it = varying_.find(value); it != varying_.end()) return it->second;
  const Shape& shape = value->type.shape;
  std::vector<bool> axes(shape.size());
  const Node* node = value->producer;
  if (node && node->op == &ops::kIota) {
    axes[at(node->attributes.integer("axis"))] = true;
  } else if (node && node->op == &ops::kBroadcast) {
    const std::vector<bool> inner = varying_axes(node->operands[0]);
    for (std::size_t d = 0; d < inner.size(); ++d) axes[at(node->attributes.integers("axes")[d])] = inner[d];
  } else if (node && node->op->kind == Kind::pointwise) {
    for (const Value* operand : node->operands) {
      const std::vector<bool> inner = varying_axes(operand);
      for (std::size_t d = 0; d < axes.size(); ++d) axes[d] = axes[d] || inner[d];
    }
  } else if (node && node->op == &ops::kConstant) {
    axes = varying_axes_of(*node->attributes.get<std::shared_ptr<const Tensor>>("value"));
  } else if (!node || node->op != &ops::kFull) {
    axes.assign(shape.size(), true);
  }
  for (std::size_t d = 0; d < axes.size(); ++d) axes[d] = axes[d] && shape[d] > 1;
  return varying_[value] = axes;
}

Var MaskAnalysis::narrowed(Builder& b, Value* mask) {
  const std::vector<bool> axes = varying_axes(mask);
  Shape shape = mask->type.shape;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!axes[d]) shape[d] = 1;
  if (shape == mask->type.shape) return b.wrap(mask);
  const Node& node = *mask->producer;  // a value without one varies along all axes
  const TensorType type{mask->type.dtype, shape};
  if (node.op == &ops::kFull) return b.full(type, node.attributes.real("value"));
  if (node.op == &ops::kIota) return b.iota(type, node.attributes.integer("axis"));
  if (node.op == &ops::kConstant)
    return b.slice(b.wrap(mask), std::vector<std::int64_t>(shape.size(), 0), shape, std::vector<std::int64_t>(shape.size(), 1));
  if (node.op == &ops::kBroadcast) return b.broadcast(narrowed(b, node.operands[0]), shape, node.attributes.integers("axes"));
  std::vector<Var> operands;
  for (Value* operand : node.operands) {
    Var x = narrowed(b, operand);
    std::vector<std::int64_t> same;
    for (std::int64_t d = 0; d < x.rank(); ++d) same.push_back(d);
    operands.push_back(b.broadcast(x, shape, same));
  }
  return b.apply(*node.op, operands, node.attributes);
}

bool MaskAnalysis::is_constant(const Value* value) {
  if (!value->producer || value->producer->op->kind == Kind::random || value->producer->op->kind == Kind::collective) return false;
  const auto& operands = value->producer->operands;
  return std::all_of(operands.begin(), operands.end(), [&](const Value* operand) { return operand && is_constant(operand); });
}

MaskAnalysis::Content MaskAnalysis::content_of(const Value* mask, std::int64_t queries, std::int64_t keys) {
  if (!is_constant(mask)) return Content::unknown;
  for (const Known& known : known_)
    if (computes_the_same(known.mask, mask)) return known.content;
  std::unordered_map<const Value*, Tensor> values;
  const Tensor tensor = evaluate_constant(mask, values);
  const std::int64_t rows = mask->type.shape[at(mask->type.rank() - 2)], columns = mask->type.shape.back();
  const bool boolean = mask->type.dtype == DType::boolean;
  bool open = true, causal = rows == queries && columns == keys;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = tensor.at(i);
    const bool seen = boolean ? x != 0 : x == 0, hidden = boolean ? x == 0 : x <= kHidden;
    open = open && seen;
    causal = causal && (i % columns <= i / columns % rows ? seen : hidden);
  }
  const Content content = open ? Content::open : causal ? Content::causal : Content::unknown;
  known_.push_back({mask, content});
  return content;
}

}  // namespace gcomp::passes
