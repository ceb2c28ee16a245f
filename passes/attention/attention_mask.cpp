#include "passes/attention/attention_mask.h"

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
  std::vector<std::pair<const Value*, const Value*>> open{{a, b}};
  std::unordered_map<const Value*, const Value*> equal;
  while (!open.empty()) {
    const auto [v, w] = open.back();
    open.pop_back();
    if (v == w) continue;
    if (!v || !w || !v->producer || !w->producer || v->type != w->type || v->index != w->index) return false;
    const Node &x = *v->producer, &y = *w->producer;
    if (x.op != y.op || x.op->kind == Kind::random || !(x.attributes == y.attributes) || x.operands.size() != y.operands.size())
      return false;
    if (const auto [known, added] = equal.emplace(v, w); !added && known->second == w) continue;
    for (std::size_t i = 0; i < x.operands.size(); ++i) open.emplace_back(x.operands[i], y.operands[i]);
  }
  return true;
}

/// Calls `visit` for `root` and what it is computed from, operands first; `enter` says whether a value is to be visited, and
/// `descend` whether its operands are.
template <class Enter, class Descend, class Visit>
void visit_operands_first(const Value* root, const Enter& enter, const Descend& descend, const Visit& visit) {
  std::vector<std::pair<const Value*, bool>> open{{root, false}};
  while (!open.empty()) {
    const auto [value, ready] = open.back();
    open.pop_back();
    if (ready) {
      visit(value);
    } else if (enter(value)) {
      open.emplace_back(value, true);
      if (!descend(value)) continue;
      for (auto operand = value->producer->operands.rbegin(); operand != value->producer->operands.rend(); ++operand)
        open.emplace_back(*operand, false);
    }
  }
}

Tensor evaluate_constant(const Value* root) {
  std::unordered_map<const Value*, Tensor> known;
  visit_operands_first(
      root, [&](const Value* value) { return !known.contains(value); }, [](const Value*) { return true; },
      [&](const Value* value) {
        const Node& node = *value->producer;
        std::vector<const Tensor*> operands;
        for (const Value* operand : node.operands) operands.push_back(&known.at(operand));
        known.emplace(value, std::move(evaluate(node, operands)[at(value->index)]));
      });
  return known.at(root);
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

namespace {

/// Whether a value's elements repeat as those of its operands do.
bool repeats_as_operands(const Value* value) {
  const Node* node = value->producer;
  return node && (node->op == &ops::kBroadcast || node->op->kind == Kind::pointwise);
}

}  // namespace

const MaskAnalysis::Variation& MaskAnalysis::variation_of(const Value* root) {
  visit_operands_first(
      root, [&](const Value* value) { return !varying_.contains(value); }, repeats_as_operands,
      [&](const Value* value) {
        const Variation variation = found_variation(*value);
        varying_.emplace(value, variation);
      });
  return varying_.at(root);
}

/// From those of the operands.
MaskAnalysis::Variation MaskAnalysis::found_variation(const Value& value) const {
  const Shape& shape = value.type.shape;
  Variation variation{std::vector<bool>(shape.size()), 0};
  std::vector<bool>& axes = variation.axes;
  const Node* node = value.producer;
  if (repeats_as_operands(&value)) {
    for (const Value* operand : node->operands) {
      const Variation& inner = varying_.at(operand);
      variation.depth = std::max(variation.depth, inner.depth + 1);
      for (std::size_t d = 0; d < inner.axes.size(); ++d) {
        const std::size_t to = node->op == &ops::kBroadcast ? at(node->attributes.integers("axes")[d]) : d;
        axes[to] = axes[to] || inner.axes[d];
      }
    }
  } else if (node && node->op == &ops::kIota) {
    axes[at(node->attributes.integer("axis"))] = true;
  } else if (node && node->op == &ops::kConstant) {
    axes = varying_axes_of(*node->attributes.get<std::shared_ptr<const Tensor>>("value"));
  } else if (!node || node->op != &ops::kFull) {
    axes.assign(shape.size(), true);
  }
  for (std::size_t d = 0; d < axes.size(); ++d) axes[d] = axes[d] && shape[d] > 1;
  return variation;
}

Var MaskAnalysis::narrowed(Builder& b, Value* mask) {
  if (variation_of(mask).depth > kDeepest) return b.wrap(mask);
  std::unordered_map<const Value*, Var> made;
  return narrowed(b, mask, made);
}

/// Recurses at most kDeepest deep.
Var MaskAnalysis::narrowed(Builder& b, Value* mask, std::unordered_map<const Value*, Var>& made) {
  if (const auto known = made.find(mask); known != made.end()) return known->second;
  const std::vector<bool>& axes = variation_of(mask).axes;
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
  if (node.op == &ops::kBroadcast) return b.broadcast(narrowed(b, node.operands[0], made), shape, node.attributes.integers("axes"));
  std::vector<Var> operands;
  for (Value* operand : node.operands) {
    Var x = narrowed(b, operand, made);
    std::vector<std::int64_t> same;
    for (std::int64_t d = 0; d < x.rank(); ++d) same.push_back(d);
    operands.push_back(b.broadcast(x, shape, same));
  }
  return made[mask] = b.apply(*node.op, operands, node.attributes);
}

bool MaskAnalysis::is_constant(const Value* mask) {
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> open{mask};
  while (!open.empty()) {
    const Value* value = open.back();
    open.pop_back();
    if (!value || !value->producer || value->producer->op->kind == Kind::random || value->producer->op->kind == Kind::collective)
      return false;
    if (!seen.insert(value).second) continue;
    open.insert(open.end(), value->producer->operands.begin(), value->producer->operands.end());
  }
  return true;
}

MaskAnalysis::Content MaskAnalysis::content_of(const Value* mask, std::int64_t queries, std::int64_t keys) {
  if (!is_constant(mask)) return Content::unknown;
  for (const Known& known : known_)
    if (computes_the_same(known.mask, mask)) return known.content;
  const Tensor tensor = evaluate_constant(mask);
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
