#include "passes/training/accumulate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>

#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::string_view kOrigin = "accumulation";

using CloneMap = std::unordered_map<const Value*, Value*>;

bool waits_at_end(std::int64_t shards, int level) { return (((shards - 1) >> level) & 1) != 0; }

/// Whether `shard`, i64[1], ends in exactly `ones` ones.
Var ends_in_ones(Builder& b, Var shard, int ones) {
  const double period = std::ldexp(1.0, ones + 1);
  Var part = b.cast(b.reshape(shard, {}), DType::f64) * (1 / period);
  Var rest = part - ops::kFloor(part);
  return rest == b.like(rest, (std::ldexp(1.0, ones) - 1) / period);
}

/// The whole tree within one graph, for a scalar: all levels are written at each shard, most with what they hold.
void add_up(Builder& b, Var value, Value* total, Var shard, std::int64_t shards) {
  Graph& graph = b.graph();
  std::vector<std::pair<Value*, Var>> updates;
  Var carried = value, at_end = value;
  for (int level = 0; level < tree_levels(shards); ++level) {
    Value* waiting = graph.add_state(value.type(), concat(total->name, ".", level), StateRole::scratch, 0.0);
    Var held = b.wrap(waiting);
    updates.emplace_back(waiting, b.select(ends_in_ones(b, shard, level), carried, held));
    carried = held + carried;
    if (waits_at_end(shards, level)) at_end = held + at_end;
  }
  for (const auto& [state, made] : updates) b.update(state, made);
  b.update(total, at_end);
}

std::vector<std::pair<Value*, Value*>> role_updates(const Graph& graph, StateRole role) {
  std::vector<std::pair<Value*, Value*>> updates;
  for (const Node& node : NodeWalk(graph))
    if (node.op->kind == Kind::update && graph.find_state(node.operands[0])->role == role)
      updates.emplace_back(node.operands[0], node.operands[1]);
  return updates;
}

/// Its random numbers are those of the rows that the shard has in the batch.
void number_draws(Graph& graph, Value* shard) {
  for (const auto& node : graph.nodes())
    if (node->op == &ops::kRandomUniform && node->operands.size() == 2) node->operands.push_back(shard);
}

/// A statistic, and the state that it lives in while the shards run.
struct Followed {
  Value *statistic, *state, *next;
};

/// What reads a statistic reads what the shard before left of it, or of the first shard the statistic itself.
void follow_statistics(Graph& graph, Value* shard, const std::vector<Followed>& statistics) {
  if (statistics.empty()) return;
  std::vector<std::unique_ptr<Node>> nodes = graph.take_nodes();
  Builder b(graph, SharedText(std::string(kOrigin)));
  Var number = b.reshape(b.wrap(shard), {});
  Var first = number == b.like(number, 0);
  std::unordered_map<const Value*, Value*> now;
  for (const Followed& followed : statistics) {
    Var old = b.wrap(followed.statistic);
    now[followed.statistic] = b.select(b.broadcast(first, old.shape(), {}), old, b.wrap(followed.state)).value;
  }
  for (auto& node : nodes) {
    for (Value*& operand : node->operands)
      if (const auto found = now.find(operand); found != now.end()) operand = found->second;
    graph.append(std::move(node));
  }
  for (const Followed& followed : statistics) {
    const auto unchanged = now.find(followed.next);
    b.update(followed.state, b.wrap(unchanged == now.end() ? followed.next : unchanged->second));
  }
}

struct Sum {
  Value *of_shard, *state;
};

Graph shard_graph(const Graph& whole, Value* number, const std::vector<Sum>& sums, const std::vector<Followed>& statistics) {
  CloneMap to;
  Graph graph = clone(whole, &to);
  graph.set_name("train_shard");
  graph.remove_updates();
  graph.clear_outputs();
  std::vector<Followed> followed;
  for (const Followed& f : statistics) followed.push_back({to.at(f.statistic), to.at(f.state), to.at(f.next)});
  follow_statistics(graph, to.at(number), followed);
  Builder b(graph, SharedText(std::string(kOrigin)));
  for (const Sum& sum : sums) b.update(to.at(sum.state), b.reshape(b.wrap(to.at(sum.of_shard)), sum.state->type.shape));
  graph.remove_dead(/*drop_states=*/true);
  graph.remove_unused_inputs(Role::shard);
  return graph;
}

/// Adds `levels` below what the shard gave, as far as `takes` them, lowest first, into level `to`, or where there is none into the
/// state itself.
template <class Takes>
Graph combine_graph(std::string name, const std::vector<Sum>& sums, int levels, const Takes& takes, std::optional<int> to) {
  Graph graph(std::move(name));
  Builder b(graph, SharedText(std::string(kOrigin)));
  for (const Sum& sum : sums) {
    const std::string& state = sum.state->name;
    const auto add = [&](int level) {
      return graph.add_state(sum.state->type, concat(state, ".", level), StateRole::scratch, 0.0);
    };
    Value* own = graph.add_state(sum.state->type, state, StateRole::scratch, 0.0);
    Var total = b.wrap(own);
    bool added = false;
    for (int level = 0; level < levels; ++level)
      if (takes(level)) total = b.wrap(add(level)) + total, added = true;
    // A plain copy would be one launch for each state; lowered without `simplify`, this is one for all.
    if (!added) total = total * 1.0;
    b.update(to ? add(*to) : own, total);
  }
  return graph;
}

/// Lowered without `simplify`, as the sums are: one launch for all.
void take_over(Graph& total, const State& statistic, const Value& state) {
  Builder b(total, SharedText(std::string(kOrigin)));
  Value* target = total.add_state(statistic.value->type, statistic.value->name, statistic.role, statistic.fill);
  b.update(target, b.wrap(total.add_state(state.type, state.name, StateRole::scratch, 0.0)) * 1.0);
}

}  // namespace

int tree_levels(std::int64_t shards) { return std::bit_width(static_cast<std::uint64_t>(shards - 1)); }

std::optional<Graph> count_graph(const Graph& whole, const ShardLoss& loss, std::int64_t shards) {
  if (loss.counts.empty()) return std::nullopt;
  CloneMap to;
  Graph graph = clone(whole, &to);
  graph.set_name("train_count");
  graph.remove_updates();
  graph.clear_outputs();
  Builder b(graph, SharedText(std::string(kOrigin)));
  Var shard = b.input({DType::i64, {1}}, "shard", Role::shard);
  for (const ShardCount& count : loss.counts) add_up(b, b.wrap(to.at(count.of_shard)), to.at(count.of_batch), shard, shards);
  graph.remove_dead(/*drop_states=*/true);
  graph.remove_unused_inputs();
  return graph;
}

Accumulation accumulate(Graph& graph, const std::vector<Value*>& parameters, Accumulated& values,
                        const AccumulateOptions& options) {
  Value* number = graph.add_input({DType::i64, {1}}, "shard", Role::shard);
  number_draws(graph, number);
  const auto add_state = [&](const TensorType& type, const std::string& name) {
    Value* state = graph.add_state(type, name, StateRole::scratch, 0.0);
    check_user(state->name == name, "what adds up over micro-batches would be called '", name,
               "', a name that the model has already");
    return state;
  };
  std::vector<Sum> sums;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    sums.push_back({values.gradients[i], add_state(parameters[i]->type, concat(parameters[i]->name, ".gradient"))});
  sums.push_back({values.loss, add_state({values.loss->type.dtype, {1}}, "batch_loss")});  // no scalar: one launch with the rest
  std::vector<Followed> statistics;
  for (const auto& [statistic, next] : role_updates(graph, StateRole::running_statistic))
    statistics.push_back({statistic, add_state(statistic->type, concat(statistic->name, ".shard")), next});

  Accumulation made{
      .count = {}, .shard = shard_graph(graph, number, sums, statistics), .combine = {}, .total = Graph(), .averaged = {}};
  const int levels = tree_levels(options.shards);
  for (int ones = 0; ones < levels; ++ones)
    made.combine.push_back(combine_graph(
        concat("train_combine_", ones), sums, ones, [](int) { return true; }, ones));
  made.total = combine_graph(
      "train_total", sums, levels, [&](int level) { return waits_at_end(options.shards, level); }, std::nullopt);

  graph.remove_updates(StateRole::counter);
  Builder b(graph, SharedText(std::string(kOrigin)));
  for (const Followed& followed : statistics) {
    if (options.skipped) b.update(followed.statistic, b.wrap(followed.state));
    else take_over(made.total, *graph.find_state(followed.statistic), *followed.state);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) values.gradients[i] = sums[i].state;
  Value* loss = b.reshape(b.wrap(sums.back().state), {}).value;
  std::ranges::replace(graph.outputs(), values.loss, loss);
  graph.take_name(values.loss, loss);
  values.loss = loss;
  return made;
}

}  // namespace gcomp::passes
