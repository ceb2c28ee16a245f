#include "passes/training/owned_updates.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "ir/base/error.h"
#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/text/print.h"
#include "passes/training/state_buckets.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Numbers of values by how they are made: two that one node could make have the same.
class ValueNumbers {
 public:
  int of(const Value* value) {
    const auto known = numbers_.find(value);
    if (known != numbers_.end()) return known->second;
    const int number = value->producer ? by_text(text_of(*value->producer, value->index)) : count_++;
    return numbers_[value] = number;
  }

 private:
  std::string text_of(const Node& node, int index) {
    std::string text = concat(node.op->name, print(node.attributes), "#", index);
    for (const Value* operand : node.operands) text += operand ? concat(" ", of(operand)) : " -";
    return node.nest ? concat(text, " ", static_cast<const void*>(&node)) : text;
  }
  int by_text(std::string text) {
    const auto [found, is_new] = texts_.try_emplace(std::move(text), count_);
    if (is_new) ++count_;
    return found->second;
  }

  std::map<const Value*, int> numbers_;
  std::map<std::string, int> texts_;
  int count_ = 0;
};

/// What is done for a member, in a text that those alike have in common.
std::string text_of(const OwnedMember& member, const UpdateGroups& groups, ValueNumbers& numbers) {
  std::map<const Value*, std::size_t> own;
  std::string text;
  for (const Value* root : member.roots) {
    own.emplace(root, own.size());
    text += concat(to_string(root->type), ";");
  }
  for (const State& state : member.states) {
    own.emplace(state.value, own.size());
    text += concat(to_string(state.value->type), " ", name_of(state.role), " ", state.fill.value_or(0), state.fill ? "" : "?", ";");
  }
  for (const Node* node : member.nodes) {
    text += concat(node->op->name, print(node->attributes));
    for (const Value* operand : node->operands)
      text += !operand                                          ? " -"
              : groups.group_of(operand) == UpdateGroups::kNone ? concat(" ", numbers.of(operand))
                                                                : concat(" %", own.at(operand));
    for (const Value* result : node->results) own.emplace(result, own.size());
    text += ";";
  }
  return text;
}

/// A root of the members of a stack, by rank; the others of its length have none.
struct Column {
  TensorType type;
  std::vector<Value*> members;
};

/// Values between all ranks, which have a share of each, and their owners.
class OwnerExchange {
 public:
  OwnerExchange(Graph& graph, const OwnOptions& options) : options_(options), b_(graph, SharedText("exchange with owners")) {}

  /// Of each column the one that this rank owns, all of it. Members are shares.
  std::vector<Value*> gather(std::span<const Column> columns) {
    std::vector<Var> shares;
    for (std::int64_t rank = 0; rank < options_.ranks; ++rank)
      for (const Column& column : columns)
        shares.push_back(at(rank) < column.members.size() ? b_.wrap(column.members[at(rank)]) : b_.full(share_type(column), 0));
    return values_of(
        unbucketed(b_, exchanged(b_.apply(ops::kBucket, shares, {{"rows", std::int64_t{1}}})), types_of(columns), parts()));
  }

  /// This rank's shares of all members of each column, those of a rank one after another; `values` are the ones it owns.
  std::vector<Value*> scatter(std::span<const Column> columns, std::span<Value* const> values) {
    std::vector<Var> whole;
    for (Value* value : values) whole.push_back(b_.wrap(value));
    const Var rows = exchanged(b_.apply(ops::kBucket, whole, {{"rows", options_.ranks}, {"parts", parts()}}));
    std::vector<TensorType> types;
    for (std::int64_t rank = 0; rank < options_.ranks; ++rank)
      for (const Column& column : columns) types.push_back(share_type(column));
    return values_of(unbucketed(b_, b_.reshape(rows, {1, rows.type().elements()}), types, 1));
  }

 private:
  static std::size_t at(std::int64_t rank) { return static_cast<std::size_t>(rank); }
  std::int64_t parts() const { return options_.shards / options_.ranks; }
  TensorType share_type(const Column& column) const {
    return {column.type.dtype, {part_elements(column.type.elements(), options_.shards) * parts()}};
  }
  static std::vector<TensorType> types_of(std::span<const Column> columns) {
    std::vector<TensorType> types;
    for (const Column& column : columns) types.push_back(column.type);
    return types;
  }
  static std::vector<Value*> values_of(const std::vector<Var>& vars) {
    std::vector<Value*> values;
    for (const Var& var : vars) values.push_back(var.value);
    return values;
  }
  /// Row r goes to rank r.
  Var exchanged(Var bucket) {
    const Var rows = b_.reshape(bucket, {options_.ranks, bucket.type().elements() / options_.ranks});
    return b_.apply(ops::kAllToAll, {rows}, {{"ranks", options_.ranks}});
  }

  const OwnOptions& options_;
  Builder b_;
};

/// Stacks whose parameters and gradients go in one exchange.
std::vector<std::span<const OwnedStack>> buckets_of_stacks(std::span<const OwnedStack> stacks, std::int64_t bytes) {
  std::vector<std::span<const OwnedStack>> buckets;
  std::size_t begin = 0;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    std::int64_t more = 0;
    for (const Value* root : stacks[i][0].roots) more += root->type.bytes();
    if (i > begin && filled + more > bytes) {
      buckets.push_back(stacks.subspan(begin, i - begin));
      begin = i;
      filled = 0;
    }
    filled += more;
  }
  if (begin < stacks.size()) buckets.push_back(stacks.subspan(begin));
  return buckets;
}

/// What owners do with the stacks of one exchange.
class OwnedBuild {
 public:
  using Now = std::function<Value*(Value*)>;
  OwnedBuild(Graph& graph, const UpdateGroups& groups, const OwnOptions& options, const Now& now,
             std::map<const Value*, Value*> known)
      : graph_(graph), groups_(groups), options_(options), exchange_(graph, options), now_(now), known_(std::move(known)) {}

  void take(std::span<const OwnedStack> stacks) {
    if (options_.ranks == 1) return take_alone(stacks);
    std::map<DType, std::vector<std::pair<std::size_t, std::size_t>>> roots;  // by stack and place
    for (std::size_t i = 0; i < stacks.size(); ++i)
      for (std::size_t root = 0; root < stacks[i][0].roots.size(); ++root)
        roots[stacks[i][0].roots[root]->type.dtype].emplace_back(i, root);
    for (const auto& [dtype, places] : roots) {
      std::vector<Column> columns;
      for (const auto& [stack, root] : places) columns.push_back(column_of(stacks[stack], root));
      const std::vector<Value*> whole = exchange_.gather(columns);
      for (std::size_t i = 0; i < places.size(); ++i) known_[stacks[places[i].first][0].roots[places[i].second]] = whole[i];
    }
    std::map<DType, std::vector<std::pair<Column, Value*>>> changed;
    for (const OwnedStack& stack : stacks) {
      Value* parameter = change(stack);
      changed[parameter->type.dtype].emplace_back(column_of(stack, 0), parameter);
    }
    for (const auto& [dtype, made] : changed) give(made);
  }

  std::vector<StateUpdate> finish() { return std::move(updates_); }

 private:
  void take_alone(std::span<const OwnedStack> stacks) {
    for (const OwnedStack& stack : stacks) {
      for (Value* root : stack[0].roots) known_[root] = now_(root);
      Value* parameter = stack[0].roots[0];
      updates_.push_back({now_(parameter), change(stack), SharedText(concat("optimizer of ", parameter->name))});
    }
  }

  Column column_of(const OwnedStack& stack, std::size_t root) const {
    Column column{stack[0].roots[root]->type, {}};
    for (const OwnedMember& member : stack) column.members.push_back(now_(member.roots[root]));
    return column;
  }

  /// Does for one what the nodes of the first say, between barriers; gives the new parameter.
  Value* change(const OwnedStack& stack) {
    const OwnedMember& first = stack[0];
    fenced_.clear();
    of_ = first.roots[0]->name;
    for (const Value* root : first.roots) known_[root] = fenced(known_.at(root));
    Value* changed = nullptr;
    for (const Node* node : first.nodes) {
      std::vector<Value*> operands;
      for (Value* operand : node->operands) operands.push_back(operand ? made_of(operand) : nullptr);
      if (node->op->kind == Kind::update) {
        if (node->operands[0] == first.roots[0]) changed = operands[1];
        else updates_.push_back({operands[0], operands[1], node->origin});
        continue;
      }
      const Node* made = graph_.append(*node->op, std::move(operands), node->attributes, node->origin);
      for (std::size_t i = 0; i < node->results.size(); ++i) known_[node->results[i]] = made->results[i];
    }
    check_internal(changed, "parameter '", first.roots[0]->name, "' has an optimizer that does not update it");
    return fenced(changed);
  }

  Value* fenced(Value* value) { return graph_.append(ops::kBarrier, {value}, {{"of", of_}})->result(); }

  Value* made_of(Value* value) {
    if (const auto found = known_.find(value); found != known_.end()) return found->second;
    if (groups_.group_of(value) != UpdateGroups::kNone) return now_(value);  // a state
    Value*& made = fenced_[value];
    if (!made) made = is_spread(value) ? spread(*value->producer) : fenced(now_(value));
    return made;
  }

  /// The same again: of a scalar not all elements go through a barrier.
  Value* spread(const Node& node) {
    std::vector<Value*> operands;
    for (Value* operand : node.operands) operands.push_back(made_of(operand));
    return graph_.append(*node.op, std::move(operands), node.attributes, node.origin)->result();
  }

  void give(const std::vector<std::pair<Column, Value*>>& changed) {
    std::vector<Column> columns;
    std::vector<Value*> values;
    for (const auto& [column, value] : changed) {
      columns.push_back(column);
      values.push_back(value);
    }
    const std::vector<Value*> shares = exchange_.scatter(columns, values);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const Column& column = columns[i % columns.size()];
      const std::size_t rank = i / columns.size();
      if (rank < column.members.size()) updates_.push_back({column.members[rank], shares[i], SharedText("exchange with owners")});
    }
  }

  Graph& graph_;
  const UpdateGroups& groups_;
  const OwnOptions& options_;
  OwnerExchange exchange_;
  const Now& now_;
  std::map<const Value*, Value*> known_;   // of groups
  std::map<const Value*, Value*> fenced_;  // of none, for the parameter at hand
  std::string of_;                         // its name
  std::vector<StateUpdate> updates_;
};

}  // namespace

OwnedUpdates::OwnedUpdates(Graph& graph, const UpdateGroups& groups, const std::vector<Value*>& parameters,
                           const OwnOptions& options)
    : graph_(graph), groups_(groups), options_(options) {
  std::map<std::size_t, OwnedMember> members;
  for (Value* parameter : parameters)
    if (groups.division_of(parameter) == Division::owner) members[groups.group_of(parameter)].roots = {parameter};
  const auto member_of = [&](const Value* value) {
    const auto found = members.find(groups.group_of(value));
    return found == members.end() ? nullptr : &found->second;
  };
  for (const State& state : graph.states()) {
    OwnedMember* member = member_of(state.value);
    if (!member || state.value == member->roots[0]) continue;
    if (groups.is_in_parts(state.value)) member->roots.push_back(state.value);
    else member->states.push_back(state);
  }
  for (Node& node : NodeWalk(graph))
    if (OwnedMember* member = member_of(node.op->kind == Kind::update ? node.operands[0] : node.result()))
      member->nodes.push_back(&node);
  ValueNumbers numbers;
  std::map<std::string, std::size_t> open;  // the stack that takes the next
  for (Value* parameter : parameters) {
    OwnedMember* member = member_of(parameter);
    if (!member) continue;
    const auto [found, is_new] = open.try_emplace(text_of(*member, groups, numbers), stacks_.size());
    if (is_new || std::ssize(stacks_[found->second]) == options.ranks) {
      found->second = stacks_.size();
      stacks_.emplace_back();
    }
    stacks_[found->second].push_back(std::move(*member));
  }
}

std::vector<ShardedState> OwnedUpdates::add_states(const std::function<void(Value*, Value*)>& replace) {
  std::vector<ShardedState> added;
  if (options_.ranks == 1) return added;
  for (const OwnedStack& stack : stacks_)
    for (std::size_t i = 0; i < stack[0].states.size(); ++i) {
      const State& first = stack[0].states[i];
      const std::string own = own_name(first.value->name);
      Value* slot = graph_.add_state(first.value->type, own, first.role, first.fill);
      check_user(slot->name == own, "what ranks hold of '", first.value->name, "' would be called '", own,
                 "', a name that the model has already");
      slots_[first.value] = slot;
      for (std::size_t rank = 0; rank < stack.size(); ++rank) {
        Value* state = stack[rank].states[i].value;
        added.push_back({state->name, own, state->type, state->type.elements(), static_cast<std::int64_t>(rank)});
        replace(state, slot);
      }
    }
  return added;
}

std::vector<StateUpdate> OwnedUpdates::build(const std::function<Value*(Value*)>& now) const {
  OwnedBuild build(graph_, groups_, options_, now, slots_);
  for (const std::span<const OwnedStack> stacks : buckets_of_stacks(stacks_, options_.bucket_bytes)) build.take(stacks);
  return build.finish();
}

}  // namespace gcomp::passes
