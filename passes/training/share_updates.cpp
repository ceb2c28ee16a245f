#include "passes/training/share_updates.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "ir/base/integers.h"
#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/owned_updates.h"
#include "passes/training/update_groups.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Turns the nodes of a step to those of a rank, in rounds: what all ranks have to know of each other is asked for once all of it
/// that can be has been computed, and what reads it comes in the next round.
class UpdateSharing {
 public:
  UpdateSharing(Graph& graph, const std::vector<Value*>& parameters, const ShareOptions& options)
      : graph_(graph),
        options_(options),
        groups_(graph, parameters),
        owned_(graph, groups_, parameters, {is_distributed() ? options.ranks : 1, options.shards, options.bucket_bytes}),
        waits_(graph) {}

  std::vector<ShardedState> run() {
    if (is_distributed()) take_states();
    nodes_ = graph_.take_nodes();
    std::vector<Node*> left;
    for (const auto& node : nodes_)
      if (!is_owned(*node)) left.push_back(node.get());
    while (!left.empty()) {
      left = round(left);
      ask_for_extremes();
    }
    std::ranges::move(owned_.build([&](Value* value) { return now(value); }), std::back_inserter(updates_));
    for (const StateUpdate& update : updates_) graph_.append(ops::kUpdate, {update.state, update.value}, {}, update.origin);
    for (Value*& output : graph_.outputs()) output = now(output);
    drop_states();
    graph_.remove_dead();
    return std::move(states_);
  }

 private:
  bool is_distributed() const { return options_.ranks > 1 && options_.sharded; }
  std::int64_t own_parts() const { return options_.shards / options_.ranks; }
  std::int64_t share_of(const Value* value) const { return part_elements(value->type.elements(), options_.shards) * own_parts(); }
  bool is_shared(const Value* value) const { return is_distributed() && groups_.is_in_parts(value); }
  /// What only an owner can do, and what it updates.
  bool is_owned(const Node& node) const {
    const Value* of = node.op->kind == Kind::update ? node.operands[0] : node.result();
    return groups_.division_of(of) == Division::owner && (node.op->kind == Kind::update || !groups_.is_in_parts(of));
  }
  Value* now(Value* value) const {
    const auto found = now_.find(value);
    return found == now_.end() ? value : found->second;
  }

  void take_states() {
    const std::vector<State> before = graph_.states();
    for (const State& state : before) {
      if (!groups_.is_in_parts(state.value)) continue;
      const std::string own = own_name(state.value->name);
      const std::int64_t share = share_of(state.value);
      Value* made = graph_.add_state({state.value->type.dtype, {share}}, own, state.role, state.fill);
      check_user(made->name == own, "what a rank holds of '", state.value->name, "' would be called '", own,
                 "', a name that the model has already");
      states_.push_back({state.value->name, own, state.value->type, share});
      now_[state.value] = made;
    }
    std::ranges::move(owned_.add_states([&](Value* state, Value* made) { now_[state] = made; }), std::back_inserter(states_));
  }

  void drop_states() {
    std::erase_if(graph_.states(), [&](const State& state) { return now_.contains(state.value); });
  }

  std::vector<Node*> round(const std::vector<Node*>& nodes) {
    std::vector<Node*> later;
    for (Node* node : nodes) {
      const auto waits = [&](const Value* operand) { return operand && waits_.contains(operand); };
      if (std::ranges::any_of(node->operands, waits)) {
        waits_.insert_all(node->results);
        later.push_back(node);
      } else {
        take(*node);
      }
    }
    return later;
  }

  void take(Node& node) {
    if (node.op->kind == Kind::update) {
      updates_.push_back({now(node.operands[0]), now(node.operands[1]), node.origin});
    } else if (node.op == &ops::kSquareSums) {
      sum_squares(node);
    } else if (node.op->kind == Kind::pointwise && is_shared(node.result())) {
      take_pointwise(node);
    } else if (is_extreme_of_all(node) && is_shared(node.operands[0])) {
      Node* made = graph_.append(*node.op, {now(node.operands[0])}, {{"axes", std::vector<std::int64_t>{0}}}, node.origin);
      extremes_.emplace_back(&node, made->result());
      waits_.insert(node.result());
    } else {
      std::vector<Value*> operands;
      for (Value* operand : node.operands) operands.push_back(operand ? now(operand) : nullptr);
      Node* made = graph_.append(*node.op, std::move(operands), node.attributes, node.origin);
      for (std::size_t i = 0; i < node.results.size(); ++i) replace(node.results[i], made->results[i]);
    }
  }

  void replace(Value* before, Value* made) {
    now_[before] = made;
    graph_.take_name(before, made);
  }

  void take_pointwise(const Node& node) {
    std::vector<Value*> operands;
    for (Value* operand : node.operands)
      operands.push_back(is_spread(operand) ? spread(operand, share_of(node.result())) : now(operand));
    replace(node.result(), graph_.append(*node.op, std::move(operands), node.attributes, node.origin)->result());
  }

  /// The same scalar, over the elements of a share.
  Value* spread(const Value* value, std::int64_t share) {
    Value*& made = spread_[{value, share}];
    if (made) return made;
    const Node& node = *value->producer;
    Attributes attributes = node.attributes;
    attributes.set("shape", std::vector<std::int64_t>{share});
    std::vector<Value*> operands;
    for (Value* operand : node.operands) operands.push_back(now(operand));
    return made = graph_.append(*node.op, std::move(operands), std::move(attributes), node.origin)->result();
  }

  /// Squares of what is in parts come first, those of the first part of all, then those of the second; then what is whole.
  void sum_squares(Node& node) {
    Builder b(graph_, node.origin);
    std::vector<Var> in_parts, whole, sums;
    for (Value* operand : node.operands) (groups_.is_in_parts(operand) ? in_parts : whole).push_back(b.wrap(now(operand)));
    if (!in_parts.empty()) {
      const std::int64_t parts = is_distributed() ? own_parts() : options_.shards;
      Var own = b.apply(ops::kSquareSums, std::move(in_parts), {{"parts", parts}});
      if (is_distributed()) own = b.apply(ops::kAllGather, {own}, group());
      sums.push_back(b.reshape(own, {own.type().elements()}));
    }
    if (!whole.empty()) sums.push_back(b.apply(ops::kSquareSums, std::move(whole)));
    now_[node.result()] = (sums.size() == 1 ? sums[0] : b.concat(std::move(sums), 0)).value;
  }

  Attributes group() const { return {{"ranks", options_.ranks}}; }

  /// Of all ranks, in one exchange for each op and type.
  void ask_for_extremes() {
    std::map<std::pair<const OpDef*, DType>, std::vector<std::pair<Node*, Value*>>> kinds;
    for (const auto& [node, own] : extremes_) kinds[{node->op, own->type.dtype}].emplace_back(node, own);
    Builder b(graph_, "distributed step");
    for (const auto& [kind, members] : kinds) {
      std::vector<Var> own;
      for (const auto& [node, value] : members) own.push_back(b.reshape(b.wrap(value), {1}));
      const Var all = b.apply(ops::kAllGather, {own.size() == 1 ? own[0] : b.concat(own, 0)}, group());
      const Var extremes = b.reduce(*kind.first, all, {0});
      for (std::size_t i = 0; i < members.size(); ++i)
        replace(members[i].first->result(), b.reshape(b.slice_axis(extremes, 0, static_cast<std::int64_t>(i), 1), {}).value);
    }
    extremes_.clear();
    waits_ = ValueSet(graph_);
  }

  Graph& graph_;
  const ShareOptions& options_;
  UpdateGroups groups_;
  OwnedUpdates owned_;
  std::vector<std::unique_ptr<Node>> nodes_;  // as they were; their values are read until the end
  std::vector<ShardedState> states_;
  std::unordered_map<const Value*, Value*> now_;
  std::map<std::pair<const Value*, std::int64_t>, Value*> spread_;
  std::vector<StateUpdate> updates_;                // come last: all reads of a state are before
  std::vector<std::pair<Node*, Value*>> extremes_;  // of a rank's share, not asked for
  ValueSet waits_;
};

}  // namespace

std::vector<ShardedState> share_updates(Graph& graph, const std::vector<Value*>& parameters, const ShareOptions& options) {
  return UpdateSharing(graph, parameters, options).run();
}

}  // namespace gcomp::passes
