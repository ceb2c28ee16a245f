#include "passes/training/distribute.h"

#include <bit>
#include <map>
#include <string>
#include <utility>

#include "ir/base/integers.h"
#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"

namespace gcomp::passes {
namespace {

using namespace ir;

using StateList = std::vector<SharedState>;

/// Arrays of one dtype each, in their order.
std::vector<StateList> buckets_of(const StateList& states, std::int64_t bytes) {
  std::vector<StateList> buckets;
  std::map<DType, std::size_t> open;
  std::map<std::size_t, std::int64_t> filled;
  for (const SharedState& state : states) {
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

class ExchangeBuilder {
 public:
  ExchangeBuilder(std::string name, const DistributeOptions& options)
      : options_(options), graph_(std::move(name)), b_(graph_, SharedText("exchange")) {}

  /// Each state becomes the sum of all ranks'.
  void add_sums(const StateList& states) {
    for (const StateList& bucket : buckets_of(states, options_.bucket_bytes)) add_summed_bucket(bucket);
  }

  /// A scalar, as add_sums(), with one exchange in the place of two.
  void add_scalar_sum(const SharedState& state) {
    const Var own = declare(state);
    const Var all = b_.apply(ops::kAllGather, {own}, group());
    std::vector<Var> parts;
    for (std::int64_t r = 0; r < options_.ranks; ++r) parts.push_back(b_.reshape(b_.slice_axis(all, 0, r, 1), state.type.shape));
    b_.update(own.value, tree_sum(std::span<const Var>(parts)));
  }

  /// All ranks' rows, one rank's after another's.
  void gather_rows(const std::vector<BroughtRows>& rows) {
    StateList own;
    std::map<std::string, const SharedState*> all;
    for (const BroughtRows& one : rows) {
      own.push_back(one.own);
      all[one.own.name] = &one.all;
    }
    for (const StateList& bucket : buckets_of(own, options_.bucket_bytes)) gather_bucket(bucket, all);
  }

  Graph finish() { return std::move(graph_); }

 private:
  Attributes group() const { return {{"ranks", options_.ranks}}; }

  Var declare(const SharedState& state) { return b_.wrap(graph_.add_state(state.type, state.name, StateRole::scratch, 0.0)); }

  std::vector<Var> declare_all(const StateList& states) {
    std::vector<Var> declared;
    for (const SharedState& state : states) declared.push_back(declare(state));
    return declared;
  }

  void add_summed_bucket(const StateList& states) {
    const std::vector<Var> own = declare_all(states);
    Var bucket = b_.apply(ops::kBucket, own, {{"rows", options_.ranks}});
    bucket = b_.apply(ops::kReduceScatter, {bucket}, group());
    bucket = b_.apply(ops::kAllGather, {bucket}, group());
    std::vector<TensorType> types;
    for (const SharedState& state : states) types.push_back(state.type);
    const std::vector<Var> totals = b_.apply_many(ops::kUnbucket, {bucket}, {{"shapes", bucket_shapes(types)}});
    for (std::size_t i = 0; i < own.size(); ++i) b_.update(own[i].value, totals[i]);
  }

  void gather_bucket(const StateList& states, const std::map<std::string, const SharedState*>& all) {
    std::vector<TensorType> types;
    for (const SharedState& state : states) types.push_back(state.type);
    const BucketLayout layout = bucket_layout(types, 1);
    Var bucket = b_.apply(ops::kBucket, declare_all(states), {{"rows", std::int64_t{1}}});
    bucket = b_.reshape(b_.apply(ops::kAllGather, {bucket}, group()), {options_.ranks, layout.row_elements});
    for (std::size_t i = 0; i < states.size(); ++i) {
      const SharedState& target = *all.at(states[i].name);
      const Var rows = b_.slice_axis(bucket, 1, layout.places[i], types[i].elements());
      b_.update(declare(target).value, b_.reshape(rows, target.type.shape));
    }
  }

  const DistributeOptions& options_;
  Graph graph_;
  Builder b_;
};

/// Whether so many ranks each compute one node of the tree.
bool own_nodes(std::int64_t shards, std::int64_t ranks) {
  return ranks == 1 || (shards % ranks == 0 && std::has_single_bit(static_cast<std::uint64_t>(shards / ranks)));
}

}  // namespace

void require_ranks(std::int64_t shards, std::int64_t ranks) {
  if (own_nodes(shards, ranks)) return;
  std::string fitting;
  for (std::int64_t n = 1; n <= shards; ++n)
    if (own_nodes(shards, n)) fitting += concat(fitting.empty() ? "" : ", ", n);
  throw UserError(concat(ranks, " ranks share ", shards, " micro-batches: wanted ", fitting,
                         " ranks, each with 1, 2, 4, 8, ... of them, or another --micro-batches, such as ", 8 * ranks),
                  ExitCode::usage);
}

void distribute(Accumulation& accumulation, const DistributeOptions& options) {
  check_user(
      accumulation.handed.empty(), "running statistic '", accumulation.handed.empty() ? "" : accumulation.handed[0],
      "' is read by the step that it changes, so that each micro-batch needs the one before: such a model is trained by one rank");
  if (accumulation.count) {
    ExchangeBuilder counts("train_count_exchange", options);
    for (const SharedState& state : accumulation.counted) counts.add_scalar_sum(state);
    accumulation.count_exchange = counts.finish();
  }
  ExchangeBuilder exchange("train_exchange", options);
  exchange.add_sums(accumulation.summed);
  exchange.gather_rows(accumulation.brought);
  accumulation.exchange = exchange.finish();
}

}  // namespace gcomp::passes
