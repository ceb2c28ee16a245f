#include "passes/storage.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr int kForever = std::numeric_limits<int>::max();

class StorageAssigner {
 public:
  StorageAssigner(const Graph& graph, const NodeOrder& order, const ReuseTable& reuse) : graph_(graph), order_(order), reuse_(reuse) {}

  Storages run() {
    find_updates();
    find_last_reads();
    for (const State& state : graph_.states()) open(state.value, MemorySpace::state, kForever);
    for (const Value* input : graph_.inputs()) open(input, MemorySpace::io, kForever);
    outputs_.insert(graph_.outputs().begin(), graph_.outputs().end());
    for (const Value* output : graph_.outputs()) outputs_.insert(root(output));
    choose_updates_in_place();
    for (position_ = 0; position_ < static_cast<int>(order_.size()); ++position_) place_results(*order_[static_cast<std::size_t>(position_)]);
    return std::move(storages_);
  }

 private:
  /// Memory that a value's elements are read from. A view of a state that is read after the state's update must be a copy.
  const Value* root(const Value* value) const {
    while (value->producer && reuse_.at(value->producer).alias && !copies_.count(value)) value = value->producer->operands[0];
    return value;
  }
  bool is_alias(const Node& node) const { return reuse_.at(&node).alias && !copies_.count(node.result()); }

  void find_updates() {
    for (std::size_t p = 0; p < order_.size(); ++p)
      if (order_[p]->op->kind == Kind::update) updates_.emplace(order_[p]->operands[0], Update{order_[p]->operands[1], static_cast<int>(p)});
    if (updates_.empty()) return;
    auto check = [&](const Value* value, int position) {
      if (!value || !value->producer || !reuse_.at(value->producer).alias) return;
      auto update = updates_.find(root(value));
      if (update != updates_.end() && position > update->second.position) copies_.insert(value);
    };
    for (std::size_t p = 0; p < order_.size(); ++p)
      for (const Value* operand : order_[p]->operands) check(operand, static_cast<int>(p));
    for (const Value* output : graph_.outputs()) check(output, kForever);
  }

  void find_last_reads() {
    for (std::size_t p = 0; p < order_.size(); ++p) {
      const Node& node = *order_[p];
      if (is_alias(node)) continue;
      const bool update = node.op->kind == Kind::update;
      for (std::size_t i = update ? 1 : 0; i < node.operands.size(); ++i)
        if (node.operands[i]) last_read_[root(node.operands[i])] = static_cast<int>(p);
    }
    for (const Value* output : graph_.outputs()) last_read_[root(output)] = kForever;
  }

  int last_read(const Value* value) const {
    auto it = last_read_.find(value);
    return it == last_read_.end() ? -1 : it->second;
  }

  int open(const Value* value, MemorySpace space, int last) {
    const int number = static_cast<int>(storages_.list.size());
    storages_.list.push_back({space, value->type.bytes(), position_, last, {value}});
    storages_.of[value] = number;
    return number;
  }
  void join(const Value* value, const Value* alias) {
    const int number = storages_.of.at(alias);
    storages_.list[static_cast<std::size_t>(number)].values.push_back(value);
    storages_.of[value] = number;
    storages_.alias_of[value] = alias;
  }

  /// All operands of `node` that lie in the memory of `root_value` may be overwritten by `result`.
  bool may_overwrite(const Node& node, int result, const std::function<bool(const Value*)>& in_memory) const {
    const std::vector<InPlacePair>& pairs = reuse_.at(&node).in_place;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (!node.operands[i] || !in_memory(node.operands[i])) continue;
      if (std::none_of(pairs.begin(), pairs.end(), [&](InPlacePair p) { return p.operand == static_cast<int>(i) && p.result == result; })) return false;
    }
    return true;
  }

  /// In declaration order; a value that updates two states is computed in the first and copied to the second.
  void choose_updates_in_place() {
    std::unordered_map<const Node*, int> position;
    if (!updates_.empty())
      for (std::size_t p = 0; p < order_.size(); ++p) position[order_[p]] = static_cast<int>(p);
    for (const State& state : graph_.states()) {
      auto update = updates_.find(state.value);
      if (update == updates_.end()) continue;
      const Value* value = root(update->second.value);
      const Node* producer = value->producer;
      if (!producer || producer->op->kind == Kind::constant || outputs_.count(value) || in_state_.count(value)) continue;
      const int last = last_read(state.value), made = position.at(producer);
      if (last > made || value->type.bytes() != state.value->type.bytes()) continue;
      if (last == made && !may_overwrite(*producer, value->index, [&](const Value* v) { return root(v) == state.value; })) continue;
      in_state_.emplace(value, state.value);
    }
  }

  void place_results(const Node& node) {
    if (is_alias(node)) {
      join(node.result(), node.operands[0]);
      return;
    }
    std::unordered_set<int> taken;
    for (const Value* result : node.results) {
      if (auto state = in_state_.find(result); state != in_state_.end()) {
        join(result, state->second);
        continue;
      }
      const MemorySpace space = space_of(node, result);
      const int last = std::max(position_, last_read(result));
      const Value* dying = space == MemorySpace::arena ? dying_operand(node, *result, taken) : nullptr;
      if (!dying) {
        open(result, space, last);
        continue;
      }
      join(result, dying);
      const int number = storages_.of.at(result);
      storages_.list[static_cast<std::size_t>(number)].last = last;
      taken.insert(number);
    }
  }

  MemorySpace space_of(const Node& node, const Value* result) const {
    if (node.op->kind == Kind::constant && node.attributes.find("value") &&
        std::holds_alternative<std::shared_ptr<const Tensor>>(*node.attributes.find("value")))
      return MemorySpace::constant;
    return outputs_.count(result) ? MemorySpace::io : MemorySpace::arena;
  }

  /// The operand in the arena that ends here and may be overwritten; of several the one made last.
  const Value* dying_operand(const Node& node, const Value& result, const std::unordered_set<int>& taken) const {
    const Value* best = nullptr;
    if (result.type.bytes() == 0) return nullptr;
    for (const InPlacePair& pair : reuse_.at(&node).in_place) {
      if (pair.result != result.index) continue;
      const Value* operand = node.operands[static_cast<std::size_t>(pair.operand)];
      const int number = storages_.of.at(operand);
      const Storage& storage = storages_.list[static_cast<std::size_t>(number)];
      if (storage.space != MemorySpace::arena || storage.last != position_ || taken.count(number) || storage.bytes != result.type.bytes()) continue;
      if (best && storages_.at(best).first >= storage.first) continue;
      if (may_overwrite(node, result.index, [&](const Value* v) { return storages_.of.at(v) == number; })) best = operand;
    }
    return best;
  }

  struct Update {
    const Value* value;
    int position;
  };

  const Graph& graph_;
  const NodeOrder& order_;
  const ReuseTable& reuse_;
  int position_ = 0;
  Storages storages_;
  std::unordered_map<const Value*, Update> updates_;         ///< by state
  std::unordered_map<const Value*, const Value*> in_state_;  ///< value computed in a state's memory -> state
  std::unordered_map<const Value*, int> last_read_;          ///< by root
  std::unordered_set<const Value*> outputs_;                 ///< and the roots that they are aliases of
  std::unordered_set<const Value*> copies_;                  ///< views of states that cannot be aliases
};

}  // namespace

NodeOrder order_of(const Graph& graph) {
  NodeOrder order;
  order.reserve(graph.nodes().size());
  for (const auto& node : graph.nodes()) order.push_back(node.get());
  return order;
}

const Value* root_of(const Value* value, const ReuseTable& reuse) {
  while (value->producer && reuse.at(value->producer).alias) value = value->producer->operands[0];
  return value;
}

Storages assign_storages(const Graph& graph, const NodeOrder& order, const ReuseTable& reuse) { return StorageAssigner(graph, order, reuse).run(); }

std::vector<std::int64_t> live_bytes(const Storages& storages, std::size_t nodes, std::int64_t alignment) {
  std::vector<std::int64_t> live(nodes + 1);
  for (const Storage& storage : storages.list) {
    if (storage.space != MemorySpace::arena) continue;
    live[static_cast<std::size_t>(storage.first)] += aligned(storage.bytes, alignment);
    live[std::min(static_cast<std::size_t>(storage.last), nodes - 1) + 1] -= aligned(storage.bytes, alignment);
  }
  for (std::size_t p = 1; p < live.size(); ++p) live[p] += live[p - 1];
  live.pop_back();
  return live;
}

}  // namespace gcomp::passes
