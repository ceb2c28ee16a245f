#include "passes/training/distribute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ir/base/integers.h"
#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"
#include "passes/training/share_updates.h"

namespace gcomp::passes {
namespace {

using namespace ir;

using StateList = std::vector<SharedState>;

/// Arrays of one dtype each, in their order.
template <class State>
std::vector<std::vector<State>> buckets_of(const std::vector<State>& states, std::int64_t bytes) {
  std::vector<std::vector<State>> buckets;
  std::map<DType, std::size_t> open;
  std::map<std::size_t, std::int64_t> filled;
  for (const State& state : states) {
    const auto found = open.find(state.type.dtype);
    const bool fits = found != open.end() && filled[found->second] + state.type.bytes() <= bytes;
    if (!fits) {
      open[state.type.dtype] = buckets.size();
      buckets.emplace_back();
    }
    const std::size_t bucket = open[state.type.dtype];
    filled[bucket] += state.type.bytes();
    buckets[bucket].push_back(state);
  }
  return buckets;
}

std::vector<TensorType> types_of(const StateList& states) {
  std::vector<TensorType> types;
  for (const SharedState& state : states) types.push_back(state.type);
  return types;
}

using ShardedList = std::vector<ShardedState>;

class ExchangeBuilder {
 public:
  ExchangeBuilder(std::string name, const DistributeOptions& options)
      : options_(options),
        nodes_(own_nodes(options.shards, options.ranks)),
        graph_(std::move(name)),
        b_(graph_, SharedText("exchange")) {}

  /// Each state becomes the sum of all ranks', on every rank.
  void add_sums(const StateList& states) {
    for (const StateList& bucket : buckets_of(states, options_.bucket_bytes)) {
      const Var all = b_.apply(ops::kAllGather, {summed_row(bucket)}, group());
      update_from(bucket, all, types_of(bucket));
    }
  }

  /// This rank's share of the sum of all ranks' goes to the state of each that holds it.
  void add_shares(const ShardedList& bucket) {
    StateList states, own;
    for (const ShardedState& one : bucket) {
      states.push_back({one.name, one.type});
      own.push_back(own_state(one));
    }
    const Var row = summed_row(states);
    update_from(own, b_.reshape(row, {1, row.type().elements()}), types_of(own), 1);
  }

  /// Each state becomes what the ranks hold of it.
  void gather_shares(const ShardedList& bucket, StateRole role) {
    StateList whole;
    std::vector<Var> own;
    for (const ShardedState& one : bucket) {
      own.push_back(declare(own_state(one), role));
      whole.push_back({one.name, one.type});
    }
    update_from(whole, gathered(own), types_of(whole), parts(), role);
  }

  /// Sums of rows that shards left, one each.
  void sum_rows(const std::vector<BroughtRows>& counted) {
    for (const BroughtRows& one : counted) {
      const Var all = b_.apply(ops::kAllGather, {declare(one.own)}, group());
      const Var rows = b_.reshape(all, {options_.shards});
      std::vector<Var> shards;
      for (std::int64_t shard = 0; shard < options_.shards; ++shard)
        shards.push_back(b_.reshape(b_.slice_axis(rows, 0, shard, 1), one.all.type.shape));
      b_.update(declare(one.all).value, tree_sum(std::span<const Var>(shards)));
    }
  }

  /// All ranks' rows, one rank's after another's.
  void gather_rows(const std::vector<BroughtRows>& rows) {
    StateList own;
    std::map<std::string, const SharedState*> all;
    for (const BroughtRows& one : rows) {
      own.push_back(one.own);
      all[one.own.name] = &one.all;
    }
    for (const StateList& bucket : buckets_of(own, options_.bucket_bytes)) {
      const BucketLayout layout = bucket_layout(types_of(bucket), 1);
      const Var gathered_rows = gathered(declare_all(bucket));
      for (std::size_t i = 0; i < bucket.size(); ++i) {
        const SharedState& target = *all.at(bucket[i].name);
        const Var part = b_.slice_axis(gathered_rows, 1, layout.places[i], bucket[i].type.elements());
        b_.update(declare(target).value, b_.reshape(part, target.type.shape));
      }
    }
  }

  Graph finish() { return std::move(graph_); }

 private:
  Attributes group() const { return {{"ranks", options_.ranks}}; }
  std::int64_t parts() const { return options_.shards / options_.ranks; }

  static SharedState own_state(const ShardedState& one) { return {one.own, {one.type.dtype, {one.share}}}; }

  Var declare(const SharedState& state, StateRole role = StateRole::scratch) {
    const auto known = declared_.find(state.name);
    if (known != declared_.end()) return known->second;
    const std::optional<double> fill = role == StateRole::scratch ? std::optional(0.0) : std::nullopt;
    return declared_[state.name] = b_.wrap(graph_.add_state(state.type, state.name, role, fill));
  }

  std::vector<Var> declare_all(const StateList& states) {
    std::vector<Var> declared;
    for (const SharedState& state : states) declared.push_back(declare(state));
    return declared;
  }

  /// One row of each rank, in their order.
  Var gathered(std::vector<Var> arrays) {
    const Var own = b_.apply(ops::kBucket, std::move(arrays), {{"rows", std::int64_t{1}}});
    return b_.reshape(b_.apply(ops::kAllGather, {own}, group()), {options_.ranks, own.type().elements()});
  }

  /// This rank's row of the bucket of all ranks' sums.
  Var summed_row(const StateList& states) {
    std::vector<Var> nodes;
    for (std::int64_t node = 0; node < nodes_.count; ++node)
      for (const SharedState& state : states)
        nodes.push_back(declare({node_state_name(state.name, node, nodes_.count), state.type}));
    const Var bucket = b_.apply(ops::kBucket, std::move(nodes), {{"rows", options_.ranks}, {"parts", parts()}});
    if (nodes_.count == 1) return b_.apply(ops::kReduceScatter, {bucket}, group());
    const std::int64_t count = options_.ranks * nodes_.count, elements = bucket.shape()[1] / nodes_.count;
    const Var rows = b_.reshape(b_.apply(ops::kAllToAll, {bucket}, group()), {count, elements});
    std::vector<Var> terms;
    for (std::int64_t i = 0; i < count; ++i) terms.push_back(b_.reshape(b_.slice_axis(rows, 0, i, 1), {elements}));
    return tree_sum(std::span<const Var>(terms));
  }

  void update_from(const StateList& states, Var bucket, const std::vector<TensorType>& types, std::int64_t parts,
                   StateRole role = StateRole::scratch) {
    const std::vector<Var> made = b_.apply_many(ops::kUnbucket, {bucket}, {{"shapes", bucket_shapes(types)}, {"parts", parts}});
    for (std::size_t i = 0; i < states.size(); ++i) b_.update(declare(states[i], role).value, made[i]);
  }
  void update_from(const StateList& states, Var bucket, const std::vector<TensorType>& types) {
    update_from(states, bucket, types, parts());
  }

  const DistributeOptions& options_;
  OwnNodes nodes_;
  Graph graph_;
  Builder b_;
  std::map<std::string, Var, std::less<>> declared_;
};

}  // namespace

void require_ranks(std::int64_t shards, std::int64_t ranks) {
  if (ranks >= 1 && shards % ranks == 0) return;
  std::string fitting;
  for (std::int64_t n = 1; n <= shards; ++n)
    if (shards % n == 0) fitting += concat(fitting.empty() ? "" : ", ", n);
  throw UserError(concat(ranks, " ranks share ", shards, " micro-batches: wanted ", fitting,
                         " ranks, or another --micro-batches, such as ", 8 * ranks),
                  ExitCode::usage);
}

void distribute(Graph& step, Accumulation& accumulation, const std::vector<Value*>& parameters, const DistributeOptions& options) {
  std::vector<std::string> names;
  for (const Value* parameter : parameters) names.push_back(parameter->name);
  accumulation.sharded = share_updates(
      step, parameters, {.ranks = options.ranks, .shards = options.shards, .sharded = options.sharding != Sharding::none});
  if (options.ranks == 1) return;
  check_user(
      accumulation.handed.empty(), "running statistic '", accumulation.handed.empty() ? "" : accumulation.handed[0],
      "' is read by the step that it changes, so that each micro-batch needs the one before: such a model is trained by one rank");
  if (accumulation.count) {
    ExchangeBuilder counts("train_count_exchange", options);
    counts.sum_rows(accumulation.counted);
    accumulation.count_exchange = counts.finish();
  }
  const auto share_of = [&](const std::string& name) { return std::ranges::find(accumulation.sharded, name, &ShardedState::name); };
  ShardedList sums, shares;
  StateList whole;
  for (const SharedState& sum : accumulation.summed) {
    const auto share = share_of(sum.name);
    if (share == accumulation.sharded.end()) whole.push_back(sum);
    else sums.push_back(*share);
  }
  for (const std::string& name : names)
    if (const auto share = share_of(name); share != accumulation.sharded.end()) shares.push_back(*share);
  std::ranges::reverse(sums);
  const auto number = [](const char* name, const std::vector<Graph>& before) { return concat(name, "_", before.size()); };
  const OwnNodes nodes = own_nodes(options.shards, options.ranks);
  const auto add_total = [&](const StateList& states) {
    if (nodes.shards > 1)
      accumulation.bucket_totals.push_back(
          total_graph(number("train_total_bucket", accumulation.bucket_totals), states, nodes, nodes.count - 1));
  };
  for (const ShardedList& bucket : buckets_of(sums, options.bucket_bytes)) {
    StateList states;
    for (const ShardedState& one : bucket) states.push_back({one.name, one.type});
    add_total(states);
    ExchangeBuilder exchange(number("train_exchange", accumulation.exchanges), options);
    exchange.add_shares(bucket);
    accumulation.exchanges.push_back(exchange.finish());
  }
  add_total(whole);
  ExchangeBuilder rest(number("train_exchange", accumulation.exchanges), options);
  rest.add_sums(whole);
  rest.gather_rows(accumulation.brought);
  accumulation.exchanges.push_back(rest.finish());
  for (const ShardedList& bucket : buckets_of(shares, options.bucket_bytes)) {
    ExchangeBuilder gather(number("train_gather", accumulation.gathers), options);
    gather.gather_shares(bucket, StateRole::parameter);
    accumulation.gathers.push_back(gather.finish());
  }
}

}  // namespace gcomp::passes
