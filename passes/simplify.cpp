#include "passes/simplify.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/base/hash.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

// Rules by facts of the op; those of single ops stand with their definitions (OpDef::rules).

Value* pointwise_of_numbers(Node& node, Builder& b) {
  const TensorType& type = node.result()->type;
  if (node.op->kind != Kind::pointwise || !(is_float(type.dtype) || type.dtype == DType::boolean)) return nullptr;
  std::vector<double> arguments;
  for (const Value* operand : node.operands) {
    const std::optional<double> number = splat_value(operand);
    if (!number) return nullptr;
    arguments.push_back(*number);
  }
  return b.full(type, node.op->scalar.reference(arguments)).value;
}

Value* view_of_number(Node& node, Builder& b) {
  const std::optional<double> number = is_plain_view(*node.op) ? splat_value(node.operands[0]) : std::nullopt;
  return number ? b.full(node.result()->type, *number).value : nullptr;
}

/// Not the other zero.
bool is_number(const Value* value, double number) {
  const std::optional<double> found = splat_value(value);
  return found && std::bit_cast<std::uint64_t>(*found) == std::bit_cast<std::uint64_t>(number);
}

Value* identity_operand(Node& node, Builder&) {
  if (!node.op->identity) return nullptr;
  if (is_number(node.operands[1], *node.op->identity)) return node.operands[0];
  return node.op->commutative && is_number(node.operands[0], *node.op->identity) ? node.operands[1] : nullptr;
}

Value* involution(Node& node, Builder&) {
  const bool twice = node.op->involution && is_made_by(node.operands[0], *node.op);
  return twice ? node.operands[0]->producer->operands[0] : nullptr;
}

Value* reduce_of_ones(Node& node, Builder& b) {
  if (node.op->kind != Kind::reduce || node.op->reduction.of >= Reduction::Of::first_maximum) return nullptr;
  for (std::int64_t a : node.attributes.integers("axes"))
    if (node.operands[0]->type.shape[static_cast<std::size_t>(a)] != 1) return nullptr;
  return b.reshape(b.wrap(node.operands[0]), node.result()->type.shape).value;
}

/// They need nothing but numbers.
constexpr SimplifyRule kNumberRules[] = {
    {"pointwise_of_numbers", "f(full a, full b) -> full f(a, b)", pointwise_of_numbers},
    {"view_of_number", "view(full a) -> full a", view_of_number},
};
constexpr SimplifyRule kRules[] = {
    {"identity_operand", "x * 1, x / 1, x - 0 -> x", identity_operand},
    {"involution", "neg(neg x), not(not x) -> x", involution},
    {"reduce_of_ones", "a reduction over axes of size 1 -> reshape", reduce_of_ones},
};

/// By the first rule that applies; null where none does.
Value* by_rule(std::span<const SimplifyRule> rules, Node& node, Builder& b, const SimplifyOptions& options) {
  for (const SimplifyRule& rule : rules) {
    Value* made = rule.apply(node, b);
    if (!made) continue;
    if (options.observer) options.observer(rule);
    return made;
  }
  return nullptr;
}

Value* by_rule(Node& node, Builder& b, const SimplifyOptions& options) {
  if (node.results.size() != 1) return nullptr;
  for (const std::span<const SimplifyRule> rules :
       {std::span<const SimplifyRule>(kNumberRules), std::span<const SimplifyRule>(kRules), node.op->rules})
    if (Value* made = by_rule(rules, node, b, options)) return made;
  return nullptr;
}

/// Nodes on dense constants and numbers alone become constants.
std::optional<std::vector<Value*>> fold(Node& node, Builder& b, const SimplifyOptions& options) {
  bool dense = false;
  for (const Value* operand : node.operands) {
    if (!operand || !operand->producer || operand->producer->op->kind != Kind::constant) return std::nullopt;
    dense = dense || !splat_value(operand);
  }
  if (!dense || node.op->kind == Kind::update || node.results.empty()) return std::nullopt;
  for (const Value* result : node.results)
    if (result->type.bytes() > options.fold_bytes) return std::nullopt;
  std::vector<Tensor> values;
  std::vector<const Tensor*> pointers;
  for (const Value* operand : node.operands) values.push_back(evaluate(*operand->producer, {})[0]);
  for (const Tensor& value : values) pointers.push_back(&value);
  if (!std::ranges::all_of(values, doubles_hold)) return std::nullopt;  // the program keeps all digits
  std::vector<Tensor> made = evaluate(node, pointers);
  if (!std::ranges::all_of(made, doubles_hold)) return std::nullopt;
  std::vector<Value*> results;
  for (Tensor& tensor : made) results.push_back(b.constant(std::move(tensor)).value);
  return results;
}

/// A view that shows elements several times. A constant would not tell that they are the same.
bool repeats(const Node& node) {
  return is_plain_view(*node.op) && node.result()->type.elements() > node.operands[0]->type.elements();
}

bool equal_nodes(const Node& a, const Node& b) {
  return a.op == b.op && a.operands == b.operands && a.attributes == b.attributes && !a.nest && !b.nest;
}

/// Nodes by hash, open addressing: for each key the first of every kind that was there.
class SeenNodes {
 public:
  explicit SeenNodes(std::size_t most) : entries_(std::bit_ceil(2 * most + 1)) {}

  /// An equal node that came before; else null, and this one is kept.
  const Node* find_or_add(std::size_t key, const Node& node) {
    const std::size_t mask = entries_.size() - 1;
    std::size_t at = key & mask;
    for (; entries_[at].node; at = (at + 1) & mask)
      if (entries_[at].key == key && equal_nodes(*entries_[at].node, node)) return entries_[at].node;
    entries_[at] = {key, &node};
    return nullptr;
  }

 private:
  struct Entry {
    std::size_t key = 0;
    const Node* node = nullptr;
  };
  std::vector<Entry> entries_;
};

/// The updates that are to stand behind everything that reads, each before that of a state that it reads.
class LateUpdates {
 public:
  explicit LateUpdates(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      for (const Value* operand : node->operands)
        if (const auto update = of_state_.find(operand); update != of_state_.end()) add(update->second);
      if (node->op->kind == Kind::update) of_state_.emplace(node->operands[0], node.get());
    }
    for (std::size_t i = 0; i < late_.size(); ++i)  // which grows
      if (const Node* next = update_of_read(*late_[i])) add(next);
  }

  bool empty() const { return late_.empty(); }
  bool contains(const Node* node) const { return places_.contains(node); }

  /// In an order that serves all. Throws UserError where states would be each other's next values.
  std::vector<const Node*> ordered() const {
    std::unordered_map<const Node*, int> waits_for;
    for (const Node* update : late_)
      if (const Node* next = update_of_read(*update)) ++waits_for[next];
    std::vector<const Node*> order;
    for (const Node* update : late_)
      if (!waits_for.contains(update)) order.push_back(update);
    for (std::size_t i = 0; i < order.size(); ++i)  // which grows
      if (const Node* next = update_of_read(*order[i]); next && --waits_for[next] == 0) order.push_back(next);
    if (order.size() == late_.size()) return order;
    const Node* update =
        *std::ranges::find_if(late_, [&](const Node* node) { return std::ranges::find(order, node) == order.end(); });
    throw ExchangedStates(concat(update->origin.empty() ? "" : concat("node '", update->origin, "': "), "the updates of %",
                                 update->operands[0]->name, " and %", update->operands[1]->name,
                                 " exchange what states hold: one's next value may be another, but not in a circle"));
  }

 private:
  void add(const Node* update) {
    if (places_.insert(update).second) late_.push_back(update);
  }
  /// That of another state which is this one's next value.
  const Node* update_of_read(const Node& update) const {
    const auto found = of_state_.find(update.operands[1]);
    return found == of_state_.end() || found->second == &update ? nullptr : found->second;
  }

  std::unordered_map<const Value*, const Node*> of_state_;
  std::vector<const Node*> late_;
  std::unordered_set<const Node*> places_;
};

/// States are read before they are updated. A rewrite may put a state in the place of what was computed from it before its update,
/// as the gradient of sum(p * q) by q is p: such updates move behind everything that reads.
void delay_updates(Graph& graph) {
  const LateUpdates late(graph);
  if (late.empty()) return;
  const std::vector<const Node*> order = late.ordered();
  std::unordered_map<const Node*, std::unique_ptr<Node>> taken;
  for (std::unique_ptr<Node>& node : graph.take_nodes()) {
    if (late.contains(node.get())) taken.emplace(node.get(), std::move(node));
    else graph.append(std::move(node));
  }
  for (const Node* update : order) graph.append(std::move(taken.at(update)));
}

}  // namespace

std::span<const SimplifyRule> simplify_rules() {
  static const auto kAll = [] {
    std::vector<SimplifyRule> all(std::begin(kNumberRules), std::end(kNumberRules));
    all.insert(all.end(), std::begin(kRules), std::end(kRules));
    for (const OpDef* op : ops::kTable) all.insert(all.end(), op->rules.begin(), op->rules.end());
    return all;
  }();
  return kAll;
}

bool eliminate_common_subexpressions(Graph& graph) {
  SeenNodes seen(graph.nodes().size());
  return rewrite(graph, [&](Node& node, Builder&) -> std::optional<std::vector<Value*>> {
           if (node.op->kind == Kind::update || node.op->kind == Kind::random || node.op->kind == Kind::collective || node.nest)
             return std::nullopt;
           std::size_t key = hash_combine(std::hash<const OpDef*>{}(node.op), node.attributes.hash());
           for (const Value* operand : node.operands) key = hash_combine(key, std::hash<const Value*>{}(operand));
           if (const Node* earlier = seen.find_or_add(key, node)) return earlier->results;
           return std::nullopt;
         }) > 0;
}

bool fold_constants(Graph& graph, const SimplifyOptions& options) {
  const int folded = rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
    if (node.results.size() == 1)
      if (Value* made = by_rule(kNumberRules, node, b, options)) return std::vector{made};
    return repeats(node) ? std::nullopt : fold(node, b, options);
  });
  if (folded > 0) graph.remove_dead();
  return folded > 0;
}

bool simplify(Graph& graph, const SimplifyOptions& options) {
  bool any = false;
  for (bool changed = true; changed;) {
    changed = rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
                if (Value* made = by_rule(node, b, options)) return std::vector{made};
                return fold(node, b, options);
              }) > 0;
    if (any && !changed) break;  // the round before has left neither equal nor dead nodes
    changed = eliminate_common_subexpressions(graph) || changed;
    changed = graph.remove_dead() > 0 || changed;
    any = any || changed;
  }
  if (any) delay_updates(graph);
  return any;
}

}  // namespace gcomp::passes
