#include "passes/training/autocast.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

Precision precision_of(const Node& node, const AutocastOptions& options) {
  const OpDef& op = *node.op;
  if (&op == &ops::kAttention && options.half_attention && !options.half_attention(node, options.low)) return Precision::rounded;
  return op.wide_where && op.wide_where(node) ? Precision::wide : op.precision;
}

/// How many of the node's operands are optional ones: they keep their precision, as a mask that is added to scores in f32 does.
std::size_t optional_operands_of(const Node& node) {
  const OpDef& op = *node.op;
  if (op.optional_operands == 0) return 0;
  const auto required = static_cast<std::size_t>(op.operands - op.optional_operands);
  return node.operands.size() - std::min(node.operands.size(), required);
}

/// Views of one operand: what they show can be cast before as well as after.
bool is_plain_view(const Value* value) { return value->producer && is_plain_view(*value->producer->op); }
bool is_cast(const Value* value) { return value->producer && is_cast(*value->producer->op); }

class Autocast {
 public:
  Autocast(Graph& graph, const AutocastOptions& options)
      : graph_(graph), options_(options), low_type_(options.low), sources_(graph), states_(graph) {
    for (const State& state : graph.states()) states_[state.value] = &state;
  }

  bool run() {
    find_shown();
    find_positions();
    const std::vector<std::unique_ptr<Node>> old = take();
    std::unordered_map<Value*, Value*> outputs;  // one may be given twice
    for (Value*& output : graph_.outputs()) {
      Value*& made = outputs[output];
      if (!made) made = shown(output);
      output = made;
    }
    return graph_.remove_dead() > 0 || changed_;
  }

 private:
  bool is_low(const Value* v) const { return v->type.dtype == low_type_; }
  bool takes_part(const Value* v) const { return v && (v->type.dtype == DType::f32 || is_low(v)); }

  /// Values that the caller sees, through views: to round what only he reads would serve nobody.
  void find_shown() {
    shown_.insert(graph_.outputs().begin(), graph_.outputs().end());
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it)
      if ((*it)->results.size() == 1 && shown_.count((*it)->result()) && is_plain_view((*it)->result()))
        shown_.insert((*it)->operands[0]);
  }

  /// Values of which a number of elements is made, by arithmetic and views: a position in 16 bits would be that of a neighbour.
  void find_positions() {
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it) {
      const Node& node = **it;
      if (node.results.size() != 1) continue;
      const bool counts = node.op == &ops::kCast && is_integer(node.result()->type.dtype);
      if (counts || (positions_.count(node.result()) && (node.op->kind == Kind::pointwise || is_plain_view(node.result()))))
        for (const Value* operand : node.operands)
          if (is_float(operand->type.dtype)) positions_.insert(operand);
    }
  }

  /// Appends each node anew, or what takes its place; gives those that are replaced, whose values others may still name.
  std::vector<std::unique_ptr<Node>> take() {
    std::vector<std::unique_ptr<Node>> replaced;
    for (auto& node : graph_.take_nodes()) {
      const bool seen = std::any_of(node->results.begin(), node->results.end(), [&](Value* v) { return shown_.count(v) > 0; });
      for (Value*& operand : node->operands)
        if (const auto it = now_.find(operand); it != now_.end()) operand = it->second;
      if (auto old = visit(std::move(node), seen)) replaced.push_back(std::move(old));
    }
    return replaced;
  }

  std::unique_ptr<Node> visit(std::unique_ptr<Node> node, bool seen) {
    origin_ = node->origin;
    const Precision precision = precision_of(*node, options_);
    if (std::none_of(node->operands.begin(), node->operands.end(), [&](const Value* v) { return takes_part(v); })) {
      graph_.append(std::move(node));
      return nullptr;
    }
    const bool pointwise = node->op->kind == Kind::pointwise;
    const bool promotes = precision == Precision::promoted && !(pointwise && (seen || positions_.count(node->results[0]) > 0));
    if (precision == Precision::low || (promotes && may_be_low(*node, /*rounded=*/false))) return lowered(std::move(node));
    const bool rounds = (precision == Precision::rounded && is_low(node->operands[0])) ||
                        (promotes && pointwise && may_be_low(*node, /*rounded=*/true));
    for (Value*& operand : node->operands)
      if (takes_part(operand)) operand = wide(operand);
    graph_.append(std::move(node));
    Node& kept = *graph_.nodes().back();
    if (rounds && takes_part(kept.results[0])) round(kept.results[0]);
    return nullptr;
  }

  /// What a value shows through plain views.
  const Value* source_of(const Value* value) {
    const Value* source = value;
    while (is_plain_view(source) && !sources_.at(source)) source = source->producer->operands[0];
    if (const Value* known = sources_.at(source)) source = known;
    for (; value != source && !sources_.at(value); value = value->producer->operands[0]) sources_[value] = source;
    return source;
  }

  /// Whether a promoted node computes in the low type: some operand is low, and so may all others be. With `rounded`, numbers that
  /// the low type does not hold are allowed too; then the node computes in f32 and its result is rounded.
  bool may_be_low(const Node& node, bool rounded) {
    bool any = false;
    for (const Value* operand : node.operands) {
      if (!takes_part(operand)) continue;
      any = any || is_low(operand);
      if (!is_low(operand) && !is_typeless(operand, rounded) && !is_bias(node, operand)) return false;
    }
    return any;
  }

  /// A number, or a truth value as one, has no precision of its own.
  bool is_typeless(const Value* value, bool rounded) {
    const Value* source = source_of(value);
    if (is_cast(source)) return source->producer->operands[0]->type.dtype == DType::boolean;
    const std::optional<double> number = splat_value(source);
    if (!number) return false;
    const double near = round_to(low_type_, *number);
    return near == *number || std::isnan(*number) || (rounded && std::isfinite(near));
  }

  /// A parameter added to a product's result is that product's bias, and is cast with its other operands.
  bool is_bias(const Node& node, const Value* operand) {
    const State* state = states_.at(source_of(operand));
    if (node.op != &ops::kAdd || !state || state->role != StateRole::parameter) return false;
    const Value* source = source_of(node.operands[node.operands[0] == operand ? 1 : 0]);
    return source->producer && source->producer->op->kind == Kind::contract;
  }

  /// Appends the node on low operands; an op with its own idea of the result's type (a cast) keeps that.
  std::unique_ptr<Node> lowered(std::unique_ptr<Node> node) {
    std::vector<Value*> operands = node->operands;
    const std::size_t count = operands.size() - optional_operands_of(*node);
    for (std::size_t i = 0; i < count; ++i)
      if (takes_part(operands[i])) operands[i] = low(operands[i]);
    Node* made = graph_.append(*node->op, std::move(operands), node->attributes, node->origin);
    for (std::size_t i = 0; i < node->results.size(); ++i) replace(node->results[i], made->results[i]);
    return node;
  }

  void replace(Value* old, Value* made) {
    changed_ = true;
    now_[old] = made;
    graph_.take_name(old, made);
  }

  /// From here on the value is its rounding.
  void round(Value* value) {
    Value* rounded = cast(value, low_type_);
    changed_ = true;
    now_[value] = rounded;
    graph_.take_name(value, rounded);
  }

  Value* cast(Value* value, DType to) {
    changed_ = true;
    return graph_.append(ops::kCast, {value}, {{"to", to}}, origin_)->result();
  }

  Value* wide(Value* value) {
    if (!is_low(value)) return value;
    Value*& known = wide_[value];
    if (!known) {
      known = cast(value, DType::f32);
      low_[known] = value;
    }
    return known;
  }

  /// Views of a parameter show the one cast of it, so that each is cast once.
  Value* low(Value* value) {
    const Value* source = source_of(value);
    const bool before = states_.at(source) || is_typeless(source, false);
    std::vector<Value*> views;  // from the one asked for down to what is low already, or no view
    for (; before && is_plain_view(value) && !is_low(value) && !low_.count(value); value = value->producer->operands[0])
      views.push_back(value);
    Value* made = low_itself(value);
    for (; !views.empty(); views.pop_back()) {
      const Node& view = *views.back()->producer;
      made = graph_.append(*view.op, {made}, view.attributes, view.origin)->result();
      low_[views.back()] = made;
    }
    return made;
  }

  Value* low_itself(Value* value) {
    if (is_low(value)) return value;
    if (const auto it = low_.find(value); it != low_.end()) return it->second;
    Value* made = nullptr;
    if (splat_value(value)) {
      Attributes attributes = value->producer->attributes;
      attributes.set("dtype", low_type_);
      made = graph_.append(*value->producer->op, {}, attributes, origin_)->result();
    } else if (is_cast(value) && is_typeless(value, false)) {
      made = cast(value->producer->operands[0], low_type_);
    } else {
      made = cast(value, low_type_);
    }
    return low_[value] = made;
  }

  /// What the caller gets for an output: its value, by its name, in its type.
  Value* shown(Value* output) {
    const auto it = now_.find(output);
    if (it == now_.end()) return output;
    if (it->second->type == output->type) return it->second;
    Value* made = wide(it->second);
    if (is_cast(made)) graph_.take_name(it->second, made);
    return made;
  }

  Graph& graph_;
  AutocastOptions options_;
  DType low_type_;
  std::unordered_set<const Value*> shown_, positions_;
  std::unordered_map<Value*, Value*> now_, low_, wide_;  // a value's successor; its counterpart in the other type
  SharedText origin_;                                    // of the node at hand: casts are made on its behalf
  ValueTable<const Value*> sources_;                     // of views, as far as they were asked for
  ValueTable<const State*> states_;
  bool changed_ = false;
};

}  // namespace

bool autocast(Graph& graph, const AutocastOptions& options) {
  check_internal(options.low == DType::bf16 || options.low == DType::f16, "autocast to ", name_of(options.low));
  return Autocast(graph, options).run();
}

}  // namespace gcomp::passes
