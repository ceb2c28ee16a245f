#include "passes/training/distribute.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ir/base/integers.h"
#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"
#include "passes/training/shard_exchange.h"
#include "passes/training/share_updates.h"
#include "passes/training/state_buckets.h"

namespace gcomp::passes {
namespace {

using namespace ir;

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
      update_from(bucket, all, types_of_states(bucket));
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
    update_from(own, b_.reshape(row, {1, row.type().elements()}), types_of_states(own), 1);
  }

  /// Each state becomes what the ranks hold of it.
  void gather_shares(const ShardedList& bucket, StateRole role) {
    StateList whole;
    std::vector<Var> own;
    for (const ShardedState& one : bucket) {
      own.push_back(declare(own_state(one), role));
      whole.push_back({one.name, one.type});
    }
    update_from(whole, gathered_rows(b_, std::move(own), options_.ranks), types_of_states(whole), parts(), role);
  }

  /// Sums of rows that shards left, one each.
  void sum_rows(const std::vector<BroughtRows>& counted) {
    for (const BroughtRows& one : counted) {
      const Var all = b_.apply(ops::kAllGather, {declare(one.own)}, group());
      const Var rows = b_.reshape(in_order_of_shards(all), {options_.shards});
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
      const BucketLayout layout = bucket_layout(types_of_states(bucket), 1);
      const Var rows_of_all = gathered_rows(b_, declare_all(bucket), options_.ranks);
      for (std::size_t i = 0; i < bucket.size(); ++i) {
        const SharedState& target = *all.at(bucket[i].name);
        const Var part = b_.slice_axis(rows_of_all, 1, layout.places[i], bucket[i].type.elements());
        b_.update(declare(target).value, b_.reshape(in_order_of_shards(part), target.type.shape));
      }
    }
  }

  Graph finish() { return std::move(graph_); }

 private:
  Attributes group() const { return {{"ranks", options_.ranks}}; }
  std::int64_t parts() const { return options_.shards / options_.ranks; }

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

  /// Rows of the ranks' shards, [ranks, ...], as those of the shards in their order.
  Var in_order_of_shards(Var rows) {
    if (!takes_turns(options_.sharding) || parts() == 1) return rows;
    const std::int64_t elements = rows.type().elements() / options_.shards;
    return b_.transpose(b_.reshape(rows, {options_.ranks, parts(), elements}), {1, 0, 2});
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
    const std::vector<Var> made = unbucketed(b_, bucket, types, parts);
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

void require_ranks(std::int64_t shards, std::int64_t ranks, Sharding sharding) {
  if (ranks >= 1 && shards % ranks == 0) {
    if (takes_turns(sharding) && shards != ranks && !std::has_single_bit(static_cast<std::uint64_t>(ranks)))
      throw UserError(concat("--zero ", stage_of(sharding), ": ", ranks, " ranks with several of ", shards,
                             " micro-batches each: wanted 2, 4, 8, ... ranks, one micro-batch for each rank, or --zero 1"),
                      ExitCode::usage);
    return;
  }
  std::string fitting;
  for (std::int64_t n = 1; n <= shards; ++n)
    if (shards % n == 0) fitting += concat(fitting.empty() ? "" : ", ", n);
  throw UserError(concat(ranks, " ranks share ", shards, " micro-batches: wanted ", fitting,
                         " ranks, or --micro-batches and --batch that are multiples of ", ranks),
                  ExitCode::usage);
}

namespace {

/// Where a shard's backward pass begins: its loss, of which the last sum is an alias, or in lock step the sum of one.
const Value* loss_of(const Accumulation& accumulation) {
  const auto update = std::ranges::find_if(accumulation.shard.nodes(), [&](const auto& node) {
    return node->op->kind == Kind::update && node->operands[0]->name == accumulation.summed.back().name;
  });
  check_internal(update != accumulation.shard.nodes().end(), "a shard without a loss");
  const Value* value = (*update)->operands[1];
  if (is_made_by(value, ops::kLockStepSum)) value = value->producer->operands[0];
  value = unaliased(value);
  check_internal(value->producer, "a loss that nothing computes");
  return value;
}

/// What a shard's program gives away and gathers itself; sums over the shards of a rank are then of what came back.
void exchange_in_shards(Accumulation& accumulation, const ShardedList& sums, const ShardedList& parameters, const StateList& whole,
                        const DistributeOptions& options) {
  const ShardExchange exchange{
      .ranks = options.ranks, .parts = options.shards / options.ranks, .bucket_bytes = options.bucket_bytes};
  if (options.sharding == Sharding::parameters) gather_parameters(accumulation.shard, parameters, loss_of(accumulation), exchange);
  exchange_gradients(accumulation.shard, sums, whole, exchange);
  StateList all = whole;
  for (const ShardedState& one : sums) all.push_back(own_state(one));
  add_up_shards(accumulation, all, {1, accumulation.lock_step ? 1 : exchange.parts});
}

}  // namespace

void distribute(Graph& step, Accumulation& accumulation, const std::vector<Value*>& parameters, const DistributeOptions& options) {
  std::vector<std::string> names;
  for (const Value* parameter : parameters) names.push_back(parameter->name);
  accumulation.sharded = share_updates(step, parameters,
                                       {.ranks = options.ranks,
                                        .shards = options.shards,
                                        .sharded = options.sharding != Sharding::none,
                                        .bucket_bytes = options.bucket_bytes});
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
  if (takes_turns(options.sharding)) {
    exchange_in_shards(accumulation, sums, shares, whole, options);
    whole.clear();
  } else {
    std::vector<StateList> totals;
    for (const ShardedList& bucket : buckets_of(sums, options.bucket_bytes)) {
      StateList& states = totals.emplace_back();
      for (const ShardedState& one : bucket) states.push_back({one.name, one.type});
      ExchangeBuilder exchange(number("train_exchange", accumulation.exchanges), options);
      exchange.add_shares(bucket);
      accumulation.exchanges.push_back(exchange.finish());
    }
    totals.push_back(whole);
    split_last_total(accumulation, totals);
  }
  ExchangeBuilder rest(number("train_exchange", accumulation.exchanges), options);
  rest.add_sums(whole);
  rest.gather_rows(accumulation.brought);
  accumulation.exchanges.push_back(rest.finish());
  if (options.sharding == Sharding::parameters) return;
  for (const ShardedList& bucket : buckets_of(shares, options.bucket_bytes)) {
    ExchangeBuilder gather(number("train_gather", accumulation.gathers), options);
    gather.gather_shares(bucket, StateRole::parameter);
    accumulation.gathers.push_back(gather.finish());
  }
}

}  // namespace gcomp::passes
