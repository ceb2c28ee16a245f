#include "passes/training/shard_exchange.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

Attributes group_of(const ShardExchange& options) { return {{"ranks", options.ranks}}; }

struct Update {
  Value *state = nullptr, *value = nullptr;
};
using Updates = std::map<std::string, Update>;

/// Takes the updates of these states out of the graph, by name.
template <class States>
Updates take_updates(Graph& graph, const States& states) {
  Updates updates;
  for (const auto& state : states) updates[state.name] = {};
  for (std::unique_ptr<Node>& node : graph.take_nodes()) {
    const auto found = node->op->kind == Kind::update ? updates.find(node->operands[0]->name) : updates.end();
    if (found == updates.end()) graph.append(std::move(node));
    else found->second = {node->operands[0], node->operands[1]};
  }
  return updates;
}

template <class States>
Var reduced_row(Builder& b, const States& bucket, const Updates& updates, const ShardExchange& options) {
  std::vector<Var> arrays;
  for (const auto& state : bucket) {
    check_internal(updates.at(state.name).value, "nothing updates %", state.name);
    arrays.push_back(b.wrap(updates.at(state.name).value));
  }
  const Var rows = b.apply(ops::kBucket, std::move(arrays), {{"rows", options.ranks}, {"parts", options.parts}});
  return b.apply(ops::kReduceScatter, {rows}, group_of(options));
}

/// The parameters of one pass over the model, each in its bucket, gathered where the first of the bucket is read.
class GatheredPass {
 public:
  GatheredPass(Builder& b, const std::vector<ShardedList>& buckets, const std::map<std::string, Value*>& own,
               const ShardExchange& options)
      : b_(b), buckets_(buckets), own_(own), options_(options) {
    for (std::size_t i = 0; i < buckets.size(); ++i)
      for (const ShardedState& one : buckets[i]) bucket_of_[one.name] = i;
  }

  Value* parameter(const std::string& name) {
    if (!made_.contains(name)) gather(buckets_[bucket_of_.at(name)]);
    return made_.at(name);
  }

 private:
  void gather(const ShardedList& bucket) {
    std::vector<Var> shares;
    for (const ShardedState& one : bucket) shares.push_back(b_.wrap(own_.at(one.name)));
    const Var all = gathered_rows(b_, std::move(shares), options_.ranks);
    const std::vector<Var> whole = unbucketed(b_, all, types_of_states(bucket), options_.parts);
    for (std::size_t i = 0; i < bucket.size(); ++i) made_[bucket[i].name] = whole[i].value;
  }

  Builder& b_;
  const std::vector<ShardedList>& buckets_;
  const std::map<std::string, Value*>& own_;
  const ShardExchange& options_;
  std::map<std::string, std::size_t> bucket_of_;
  std::map<std::string, Value*> made_;
};

/// What a parameter became by nodes that read nothing else, such as its cast to 16 bits: made anew where it is read again, rather
/// than kept from the forward pass.
class Derived {
 public:
  explicit Derived(const std::unordered_map<const Value*, std::string>& parameters) : parameters_(parameters) {}

  /// Before the node's operands are replaced.
  void note(const Node& node) {
    const bool is_plain =
        node.operands.size() == 1 && node.results.size() == 1 && (node.op->kind == Kind::pointwise || node.op->kind == Kind::view);
    if (is_plain && (parameters_.contains(node.operands[0]) || sources_.contains(node.operands[0])))
      sources_[node.result()] = {&node, node.operands[0]};
  }

  /// The value as a pass has it that begins with other copies of the parameters; `value` itself where it is none of these.
  Value* in_pass(Graph& graph, Value* value, GatheredPass& pass) {
    if (const auto parameter = parameters_.find(value); parameter != parameters_.end()) return pass.parameter(parameter->second);
    const auto source = sources_.find(value);
    if (source == sources_.end()) return value;
    Value*& made = made_[value];
    if (made) return made;
    Value* operand = in_pass(graph, source->second.operand, pass);
    const Node& node = *source->second.node;
    return made = graph.append(*node.op, {operand}, node.attributes, node.origin)->result();
  }

 private:
  struct Source {
    const Node* node = nullptr;
    Value* operand = nullptr;
  };
  const std::unordered_map<const Value*, std::string>& parameters_;
  std::unordered_map<const Value*, Source> sources_;
  std::unordered_map<const Value*, Value*> made_;  // of the one pass that asks
};

/// In the order in which the nodes first read them.
ShardedList by_first_read(const Graph& graph, const ShardedList& parameters) {
  ShardedList ordered;
  std::map<std::string, const ShardedState*> left;
  for (const ShardedState& one : parameters) left[one.name] = &one;
  for (const Node& node : NodeWalk(graph))
    for (const Value* operand : node.operands)
      if (const auto found = operand && !operand->producer ? left.find(operand->name) : left.end(); found != left.end()) {
        ordered.push_back(*found->second);
        left.erase(found);
      }
  return ordered;
}

}  // namespace

void exchange_gradients(Graph& shard, const ShardedList& shared, const StateList& whole, const ShardExchange& options) {
  const Updates shares = take_updates(shard, shared), sums = take_updates(shard, whole);
  std::erase_if(shard.states(), [&](const State& state) { return shares.contains(state.value->name); });
  Builder b(shard, SharedText("exchange"));
  for (const ShardedList& bucket : buckets_of(shared, options.bucket_bytes)) {
    const Var row = reduced_row(b, bucket, shares, options);
    StateList own;
    for (const ShardedState& one : bucket) own.push_back(own_state(one));
    const std::vector<Var> made = unbucketed(b, b.reshape(row, {1, row.type().elements()}), types_of_states(own), 1);
    for (std::size_t i = 0; i < own.size(); ++i)
      b.update(shard.add_state(own[i].type, own[i].name, StateRole::scratch, 0.0), made[i]);
  }
  for (const StateList& bucket : buckets_of(whole, options.bucket_bytes)) {
    const Var rows = b.apply(ops::kAllGather, {reduced_row(b, bucket, sums, options)}, group_of(options));
    const std::vector<Var> made = unbucketed(b, rows, types_of_states(bucket), options.parts);
    for (std::size_t i = 0; i < bucket.size(); ++i) b.update(sums.at(bucket[i].name).state, made[i]);
  }
  shard.remove_dead();
}

void gather_parameters(Graph& shard, const ShardedList& parameters, const Value* loss, const ShardExchange& options) {
  const ShardedList read = by_first_read(shard, parameters);
  std::map<std::string, Value*> own;
  std::unordered_map<const Value*, std::string> replaced;
  const std::vector<State> states = shard.states();
  for (const ShardedState& one : read) {
    const auto held = std::ranges::find(states, one.name, [](const State& state) { return state.value->name; });
    replaced[held->value] = one.name;
    own[one.name] = shard.add_state(own_state(one).type, one.own, held->role, held->fill);
  }
  // Buckets of one pass in the other order are others, and so not taken for common subexpressions.
  ShardedList reversed(read.rbegin(), read.rend());
  const std::vector<ShardedList> forward = buckets_of(read, options.bucket_bytes),
                                 backward = buckets_of(reversed, options.bucket_bytes);
  Builder b(shard, SharedText("gather"));
  GatheredPass first(b, forward, own, options), second(b, backward, own, options);
  Derived derived(replaced);
  bool is_backward = false;
  for (std::unique_ptr<Node>& node : shard.take_nodes()) {
    if (!is_backward) derived.note(*node);
    for (Value*& operand : node->operands) {
      if (!operand) continue;
      if (is_backward) operand = derived.in_pass(shard, operand, second);
      else if (const auto found = replaced.find(operand); found != replaced.end()) operand = first.parameter(found->second);
    }
    is_backward = is_backward || loss->producer == node.get();
    shard.append(std::move(node));
  }
  std::erase_if(shard.states(), [&](const State& state) { return replaced.contains(state.value); });
  shard.remove_dead();
}

}  // namespace gcomp::passes
