#include "passes/training/accumulate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"
#include "passes/training/lock_step.h"
#include "passes/training/shard_statistics.h"

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

/// What shards bring to a statistic, each in its own row of a state.
struct Brought {
  Value *of_shard, *rows;
};

/// Writes the row of this shard; the others keep what they hold. Ranks hold rows of their own shards alone, of which they have as
/// many as all others, and whose numbers are `apart` from each other.
void keep_row(Builder& b, Var shard, std::int64_t apart, Var value, Var rows) {
  const auto count = static_cast<double>(rows.shape()[0]);
  Var number = b.cast(b.reshape(shard, {}), DType::f64);
  if (apart > 1) number = ops::kFloor(number * (1 / static_cast<double>(apart)));
  Var row = b.cast(number - ops::kFloor(number * (1 / count)) * count, DType::i64);
  std::vector<std::int64_t> inner(value.shape().size());
  std::iota(inner.begin(), inner.end(), 1);
  Var here = b.iota({DType::i64, rows.shape()}, 0) == b.broadcast(row, rows.shape(), {});
  b.update(rows.value, b.select(here, b.broadcast(value, rows.shape(), inner), rows));
}

/// `group`: where the shards of a rank run in lock step, the attributes of what they add.
Graph shard_graph(const Graph& whole, Value* number, const std::vector<Sum>& sums, const std::vector<Followed>& statistics,
                  const std::vector<Brought>& brought, std::int64_t apart, const std::optional<Attributes>& group) {
  CloneMap to;
  Graph graph = clone(whole, &to);
  graph.set_name(group ? "train_lock_step" : "train_shard");
  graph.remove_updates();
  graph.clear_outputs();
  std::vector<Followed> followed;
  for (const Followed& f : statistics) followed.push_back({to.at(f.statistic), to.at(f.state), to.at(f.next)});
  follow_statistics(graph, to.at(number), followed);
  Builder b(graph, SharedText(std::string(kOrigin)));
  for (const Sum& sum : sums) {
    Var value = b.reshape(b.wrap(to.at(sum.of_shard)), sum.state->type.shape);
    b.update(to.at(sum.state), group ? b.apply(ops::kLockStepSum, {value}, *group) : value);
  }
  for (const Brought& one : brought)
    keep_row(b, b.wrap(to.at(number)), apart, b.wrap(to.at(one.of_shard)), b.wrap(to.at(one.rows)));
  graph.remove_dead(/*drop_states=*/true);
  graph.remove_unused_inputs(Role::shard);
  return graph;
}

std::string level_name(std::string_view state, int level) { return concat(state, ".", level); }

/// Adds `levels` below what the shard gave, as far as `takes` them, lowest first, into the state that `to` names of each.
template <class Takes, class To>
Graph combine_graph(std::string name, const std::vector<SharedState>& sums, int levels, const Takes& takes, const To& to) {
  Graph graph(std::move(name));
  Builder b(graph, SharedText(std::string(kOrigin)));
  for (const auto& [state, type] : sums) {
    const auto add = [&graph, &type = type](std::string name) {
      return graph.add_state(type, std::move(name), StateRole::scratch, 0.0);
    };
    Value* own = add(state);
    Var total = b.wrap(own);
    bool added = false;
    for (int level = 0; level < levels; ++level)
      if (takes(level)) total = b.wrap(add(level_name(state, level))) + total, added = true;
    // A plain copy would be one launch for each state; lowered without `simplify`, this is one for all.
    if (!added) total = total * 1.0;
    const std::string target = to(state);
    b.update(target == state ? own : add(target), total);
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

std::string node_state_name(std::string_view state, std::int64_t node, std::int64_t nodes) {
  return node + 1 == nodes ? std::string(state) : concat(state, ".node", node);
}

std::optional<CountGraph> count_graph(const Graph& whole, const ShardLoss& loss, const AccumulateOptions& options) {
  if (loss.counts.empty()) return std::nullopt;
  CloneMap to;
  CountGraph made{clone(whole, &to), {}};
  Graph& graph = made.graph;
  graph.set_name("train_count");
  graph.remove_updates();
  graph.clear_outputs();
  Builder b(graph, SharedText(std::string(kOrigin)));
  Var shard = b.input({DType::i64, {1}}, "shard", Role::shard);
  for (const ShardCount& count : loss.counts) {
    const Var value = b.wrap(to.at(count.of_shard));
    if (options.ranks == 1) {
      add_up(b, value, to.at(count.of_batch), shard, options.shards);
      continue;
    }
    const SharedState total{count.of_batch->name, count.of_batch->type};
    const SharedState own{own_name(total.name), {total.type.dtype, {options.shards / options.ranks}}};
    keep_row(b, shard, options.in_turns ? options.ranks : 1, value,
             b.wrap(graph.add_state(own.type, own.name, StateRole::scratch, 0.0)));
    made.counted.push_back({own, total});
  }
  graph.remove_dead(/*drop_states=*/true);
  graph.remove_unused_inputs();
  return made;
}

namespace {

/// Of the node of that number.
Graph total_graph(std::string name, const std::vector<SharedState>& sums, const OwnNodes& nodes, std::int64_t node) {
  return combine_graph(
      std::move(name), sums, tree_levels(nodes.shards), [&](int level) { return waits_at_end(nodes.shards, level); },
      [&](std::string_view state) { return node_state_name(state, node, nodes.count); });
}

}  // namespace

void add_up_shards(Accumulation& accumulation, const std::vector<SharedState>& sums, const OwnNodes& nodes) {
  accumulation.nodes = nodes;
  accumulation.combine.clear();
  accumulation.totals.clear();
  for (int ones = 0; ones < tree_levels(nodes.shards); ++ones)
    accumulation.combine.push_back(combine_graph(
        concat("train_combine_", ones), sums, ones, [](int) { return true; },
        [&](std::string_view state) { return level_name(state, ones); }));
  for (std::int64_t node = 0; node < nodes.count; ++node)
    accumulation.totals.push_back(total_graph(concat("train_total", nodes.count > 1 ? concat("_", node) : ""), sums, nodes, node));
}

void split_last_total(Accumulation& accumulation, const std::vector<std::vector<SharedState>>& buckets) {
  accumulation.totals.pop_back();
  const OwnNodes& nodes = accumulation.nodes;
  if (nodes.shards == 1) return;
  for (const std::vector<SharedState>& bucket : buckets)
    accumulation.bucket_totals.push_back(
        total_graph(concat("train_total_bucket_", accumulation.bucket_totals.size()), bucket, nodes, nodes.count - 1));
}

namespace {

/// accumulate() at work.
class Accumulator {
 public:
  Accumulator(Graph& graph, const AccumulateOptions& options)
      : graph_(graph),
        options_(options),
        own_shards_(options.shards / options.ranks),
        nodes_(own_nodes(options.shards, options.ranks, options.in_turns)) {
    made_.lock_step = in_lock_step(graph);
    number_ = graph.add_input({DType::i64, {1}}, "shard", Role::shard);
    number_draws(graph, number_);
  }

  void add_sum(Value* of_shard, const TensorType& type, const std::string& name) {
    sums_.push_back({of_shard, add_state(type, name)});
    made_.summed.push_back({name, type});
  }

  void add_statistic(Value* statistic, Value* next) {
    if (auto rule = StatisticRule::find(graph_, statistic, next)) return add_rows(*std::move(rule));
    handed_.push_back({statistic, add_state(statistic->type, concat(statistic->name, ".shard")), next});
    made_.handed.push_back(statistic->name);
  }

  const std::vector<Sum>& sums() const { return sums_; }

  /// The graph becomes the rest of the step.
  Accumulation finish() {
    check_lock_step();
    std::optional<Attributes> group;
    if (made_.lock_step) group = Attributes{{"ranks", options_.shards}, {"lock_step", own_shards_}};
    made_.shard = shard_graph(graph_, number_, sums_, handed_, brought_, options_.in_turns ? options_.ranks : 1, group);
    add_up_shards(made_, made_.summed, {nodes_.count, made_.lock_step ? 1 : nodes_.shards});
    graph_.remove_updates(StateRole::counter);
    take_over_handed();
    for (const StatisticRule& rule : rules_) follow_rows(rule);
    return std::move(made_);
  }

 private:
  void check_lock_step() const {
    if (!made_.lock_step) return;
    check_user(
        handed_.empty(), "running statistic '", handed_.empty() ? "" : handed_[0].statistic->name,
        "' is read by the step that it changes, so that each micro-batch needs the one before, and --sync-batchnorm has them "
        "run at once: leave one of --micro-batches and --sync-batchnorm out");
    check_user(nodes_.count == 1, "--sync-batchnorm: each of ", options_.ranks, " ranks has ", own_shards_,
               " micro-batches, wanted 1, 2, 4, 8, ...");
  }

  Value* add_state(const TensorType& type, const std::string& name) {
    Value* state = graph_.add_state(type, name, StateRole::scratch, 0.0);
    check_user(state->name == name, "what adds up over micro-batches would be called '", name,
               "', a name that the model has already");
    return state;
  }

  void add_rows(StatisticRule rule) {
    const auto rows = [&](const TensorType& type, std::int64_t count) {
      TensorType made = type;
      made.shape.insert(made.shape.begin(), count);
      return made;
    };
    for (std::size_t i = 0; i < rule.brought().size(); ++i) {
      Value* value = rule.brought()[i];
      const std::string name = concat(rule.statistic()->name, ".shards", i == 0 ? "" : concat(".", i));
      SharedState all{name, rows(value->type, options_.shards)}, own = all;
      Value* all_rows = add_state(all.type, all.name);
      Value* own_rows = all_rows;
      if (options_.ranks > 1) {
        own = {own_name(name), rows(value->type, own_shards_)};
        own_rows = add_state(own.type, own.name);
      }
      brought_.push_back({value, own_rows});
      all_rows_.push_back(all_rows);
      made_.brought.push_back({std::move(own), std::move(all)});
    }
    rules_.push_back(std::move(rule));
  }

  void take_over_handed() {
    Builder b(graph_, SharedText(std::string(kOrigin)));
    for (const Followed& followed : handed_) {
      if (options_.skipped) b.update(followed.statistic, b.wrap(followed.state));
      else take_over(made_.totals.back(), *graph_.find_state(followed.statistic), *followed.state);
    }
  }

  /// The statistic after all shards, in their order: after one, where each brings what is of the whole batch.
  void follow_rows(const StatisticRule& rule) {
    const bool of_all = made_.lock_step && std::ranges::all_of(rule.brought(), [&](const Value* brought) {
                          return is_of_all_shards(graph_, brought);
                        });
    Builder b(graph_, SharedText(std::string(kOrigin)));
    Var statistic = b.wrap(rule.statistic());
    for (std::int64_t shard = 0; shard < (of_all ? 1 : options_.shards); ++shard) {
      std::vector<Var> brought;
      for (std::size_t i = 0; i < rule.brought().size(); ++i)
        brought.push_back(b.reshape(b.slice_axis(b.wrap(all_rows_[followed_ + i]), 0, shard, 1), rule.brought()[i]->type.shape));
      statistic = rule.apply(b, statistic, brought);
    }
    followed_ += rule.brought().size();
    b.update(rule.statistic(), statistic);
  }

  Graph& graph_;
  const AccumulateOptions& options_;
  std::int64_t own_shards_;
  OwnNodes nodes_;
  Value* number_ = nullptr;
  std::vector<Sum> sums_;
  std::vector<Followed> handed_;
  std::vector<StatisticRule> rules_;
  std::vector<Brought> brought_;  // of all rules, one after another
  std::vector<Value*> all_rows_;  // likewise
  std::size_t followed_ = 0;      // of those
  Accumulation made_;
};

}  // namespace

Accumulation accumulate(Graph& graph, const std::vector<Value*>& parameters, Accumulated& values,
                        const AccumulateOptions& options) {
  Accumulator accumulator(graph, options);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    accumulator.add_sum(values.gradients[i], parameters[i]->type, concat(parameters[i]->name, ".gradient"));
  accumulator.add_sum(values.loss, {values.loss->type.dtype, {1}}, "batch_loss");  // no scalar: one launch with the rest
  for (const auto& [statistic, next] : role_updates(graph, StateRole::running_statistic))
    accumulator.add_statistic(statistic, next);
  Accumulation made = accumulator.finish();

  const std::vector<Sum>& sums = accumulator.sums();
  for (std::size_t i = 0; i < parameters.size(); ++i) values.gradients[i] = sums[i].state;
  Builder b(graph, SharedText(std::string(kOrigin)));
  Value* loss = b.reshape(b.wrap(sums.back().state), {}).value;
  std::ranges::replace(graph.outputs(), values.loss, loss);
  graph.take_name(values.loss, loss);
  values.loss = loss;
  return made;
}

}  // namespace gcomp::passes
