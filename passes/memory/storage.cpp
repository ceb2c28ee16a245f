#include "passes/memory/storage.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace gcomp::passes {
namespace {

using namespace ir;

using OrderWalk = ListWalk<const Node*>;

constexpr int kForever = std::numeric_limits<int>::max();

class StorageAssigner {
 public:
  StorageAssigner(const Graph& graph, const NodeOrder& order, const ReuseTable& reuse)
      : graph_(graph),
        order_(order),
        reuse_(reuse),
        storages_(graph),
        alias_(graph),
        last_read_(graph),
        outputs_(graph, graph.outputs()),
        copies_(graph),
        updates_(graph),
        in_state_(graph) {
    for (const Node& node : OrderWalk(order))
      if (reuse.at(&node).alias) alias_.insert(node.result());
  }

  Storages run() {
    storages_.list.reserve(order_.size());
    find_updates();
    find_last_reads();
    for (const State& state : graph_.states()) open(state.value, MemorySpace::state, kForever);
    for (const Value* input : graph_.inputs()) open(input, MemorySpace::io, kForever);
    for (const Value* output : graph_.outputs()) outputs_.insert(root(output));
    choose_updates_in_place();
    for (const Node& node : OrderWalk(order_)) {
      place_results(node);
      ++position_;
    }
    return std::move(storages_);
  }

 private:
  /// Memory that a value's elements are read from. A view of a state that is read after the state's update must be a copy.
  const Value* root(const Value* value) const {
    while (alias_.contains(value) && !copies_.contains(value)) value = value->producer->operands[0];
    return value;
  }
  bool is_alias(const Node& node) const {
    return node.results.size() == 1 && alias_.contains(node.result()) && !copies_.contains(node.result());
  }

  void find_updates() {
    int at = 0;
    for (const Node& node : OrderWalk(order_)) {
      if (node.op->kind == Kind::update) updates_[node.operands[0]] = {node.operands[1], at}, any_updates_ = true;
      ++at;
    }
    if (!any_updates_) return;
    auto check = [&](const Value* value, int position) {
      if (!alias_.contains(value)) return;
      const Update& update = updates_[root(value)];
      if (update.value && position > update.position) copies_.insert(value);
    };
    int position = 0;
    for (const Node& node : OrderWalk(order_)) {
      for (const Value* operand : node.operands) check(operand, position);
      ++position;
    }
    for (const Value* output : graph_.outputs()) check(output, kForever);
  }

  void find_last_reads() {
    int position = -1;
    for (const Node& node : OrderWalk(order_)) {
      ++position;
      if (is_alias(node)) continue;
      const bool update = node.op->kind == Kind::update;
      for (std::size_t i = update ? 1 : 0; i < node.operands.size(); ++i)
        if (node.operands[i]) last_read_[root(node.operands[i])] = {position};
    }
    for (const Value* output : graph_.outputs()) last_read_[root(output)] = {kForever};
  }

  int last_read(const Value* value) const { return last_read_.at(value).position; }

  int number_of(const Value* value) const { return storages_.of.at(value).number; }

  int open(const Value* value, MemorySpace space, int last) {
    const int number = static_cast<int>(storages_.list.size());
    storages_.list.push_back({space, value->type.bytes(), position_, last, {value}});
    storages_.of[value].number = number;
    return number;
  }
  void share(const Value* value, const Value* alias) {
    const int number = number_of(alias);
    storages_.list[static_cast<std::size_t>(number)].values.push_back(value);
    storages_.of[value] = {number, alias};
  }

  using OperandsByStorage = std::unordered_map<int, std::vector<int>>;  ///< of one node; empty until it is needed

  /// Operands of one node by the memory they lie in: the one of `memory_of(operand)`.
  template <class Key, class F>
  static std::unordered_map<Key, std::vector<int>> operands_by(const Node& node, const F& memory_of) {
    std::unordered_map<Key, std::vector<int>> operands;
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      if (node.operands[i]) operands[memory_of(node.operands[i])].push_back(static_cast<int>(i));
    return operands;
  }
  static bool all_overwritable(const Reuse& reuse, const std::vector<int>& operands, int result) {
    return std::all_of(operands.begin(), operands.end(), [&](int operand) { return reuse.may_overwrite(operand, result); });
  }

  /// In declaration order; a value that updates two states is computed in the first and copied to the second.
  void choose_updates_in_place() {
    if (!any_updates_) return;
    NodeTable<int> position(graph_);
    std::unordered_map<const Node*, std::unordered_map<const Value*, std::vector<int>>> operands;  // of producers, by root
    for (std::size_t p = 0; p < order_.size(); ++p) position[order_[p]] = static_cast<int>(p);
    for (const State& state : graph_.states()) {
      const Update& update = updates_[state.value];
      if (!update.value) continue;
      const Value* value = root(update.value);
      const Node* producer = value->producer;
      if (!producer || producer->op->kind == Kind::constant || outputs_.contains(value) || in_state_[value]) continue;
      const int last = last_read(state.value), made = position[producer];
      if (last > made || value->type.bytes() != state.value->type.bytes()) continue;
      if (last == made) {
        auto [found, added] = operands.try_emplace(producer);
        if (added) found->second = operands_by<const Value*>(*producer, [&](const Value* v) { return root(v); });
        if (!all_overwritable(reuse_.at(producer), found->second.at(state.value), value->index)) continue;
      }
      in_state_[value] = state.value;
    }
  }

  void place_results(const Node& node) {
    if (is_alias(node)) {
      share(node.result(), node.operands[0]);
      return;
    }
    std::unordered_set<int> taken;
    OperandsByStorage operands;
    for (const Value* result : node.results) {
      if (const Value* state = in_state_[result]) {
        share(result, state);
        continue;
      }
      const MemorySpace space = space_of(node, result);
      const int last = std::max(position_, last_read(result));
      const Value* dying = space == MemorySpace::arena ? dying_operand(node, *result, operands, taken) : nullptr;
      if (!dying) {
        open(result, space, last);
        continue;
      }
      share(result, dying);
      const int number = number_of(result);
      storages_.list[static_cast<std::size_t>(number)].last = last;
      taken.insert(number);
    }
  }

  MemorySpace space_of(const Node& node, const Value* result) const {
    if (node.op->kind == Kind::constant && node.attributes.find("value") &&
        std::holds_alternative<std::shared_ptr<const Tensor>>(*node.attributes.find("value")))
      return MemorySpace::constant;
    return outputs_.contains(result) ? MemorySpace::io : MemorySpace::arena;
  }

  /// The operand in the arena that ends here and may be overwritten; of several the one made last.
  const Value* dying_operand(const Node& node, const Value& result, OperandsByStorage& operands,
                             const std::unordered_set<int>& taken) const {
    const Reuse& reuse = reuse_.at(&node);
    const Value* best = nullptr;
    if (result.type.bytes() == 0) return nullptr;
    for (auto pair = std::lower_bound(reuse.in_place.begin(), reuse.in_place.end(), InPlacePair{result.index, 0});
         pair != reuse.in_place.end() && pair->result == result.index; ++pair) {
      const Value* operand = node.operands[static_cast<std::size_t>(pair->operand)];
      const int number = number_of(operand);
      const Storage& storage = storages_.list[static_cast<std::size_t>(number)];
      if (storage.space != MemorySpace::arena || storage.last != position_ || taken.count(number) ||
          storage.bytes != result.type.bytes())
        continue;
      if (best && storages_.at(best).first >= storage.first) continue;
      if (operands.empty()) operands = operands_by<int>(node, [&](const Value* v) { return number_of(v); });
      if (all_overwritable(reuse, operands.at(number), result.index)) best = operand;
    }
    return best;
  }

  struct Update {
    const Value* value = nullptr;
    int position = 0;
  };

  const Graph& graph_;
  const NodeOrder& order_;
  const ReuseTable& reuse_;
  int position_ = 0;
  Storages storages_;
  struct LastRead {
    int position = -1;
  };
  ValueSet alias_;                  ///< results that are other values' bytes, as far as their nodes go
  ValueTable<LastRead> last_read_;  ///< by root
  ValueSet outputs_;                ///< and the roots that they are aliases of
  ValueSet copies_;                 ///< views of states that cannot be aliases
  ValueTable<Update> updates_;      ///< by state
  bool any_updates_ = false;
  ValueTable<const Value*> in_state_;  ///< value computed in a state's memory -> state
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

Storages assign_storages(const Graph& graph, const NodeOrder& order, const ReuseTable& reuse) {
  return StorageAssigner(graph, order, reuse).run();
}

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
