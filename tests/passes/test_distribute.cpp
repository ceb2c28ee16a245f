// A step in shards that ranks share, run by the interpreter in lock step: its states are those of one rank, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/training/distribute.h"

namespace gcomp::passes {
namespace {

using ir::Graph;
using ir::Var;

using Named = std::map<std::string, Tensor>;

constexpr std::int64_t kRowsOfShard = 2, kWidth = 5, kLabels = 3;

/// A running mean of the rows, which one process hands on from shard to shard where `reads` it.
Graph scores(std::int64_t rows, bool reads = false) {
  Graph graph("forward");
  ir::Builder b(graph);
  Var x = b.input({DType::f32, {rows, kWidth}}, "x");
  Var w = b.wrap(graph.add_state({DType::f32, {kWidth, kLabels}}, "w", ir::StateRole::parameter));
  Var bias = b.wrap(graph.add_state({DType::f32, {kLabels}}, "b", ir::StateRole::parameter));
  Var mean = b.wrap(graph.add_state({DType::f32, {kWidth}}, "mean", ir::StateRole::running_statistic));
  Var centered = reads ? x - b.broadcast(mean, x.shape()) : x;
  graph.add_output((b.matmul(centered, w) + b.broadcast(bias, {rows, kLabels})).value);
  graph.rename(graph.outputs()[0], "logits");
  b.update(mean.value, mean * 0.9 + b.mean(x, {0}) * 0.1);
  return graph;
}

struct RankStep {
  Graph graph;
  std::optional<Accumulation> accumulation;
};

RankStep rank_step(std::int64_t shards, std::int64_t ranks, bool reads = false) {
  RankStep made{scores(kRowsOfShard, reads), {}};
  TrainingRequest request{.loss = parse_loss("cross_entropy(weight=[0.5, 1.5, 2])"),
                          .optimizer = OptimizerSpec("adamw"),
                          .trained = {"w", "b"},
                          .ranks = ranks,
                          .shards = shards};
  made.accumulation = prepare(made.graph, {}, &request);
  return made;
}

Tensor random_rows(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Tensor made(DType::f32, shape);
  for (std::int64_t i = 0; i < made.elements(); ++i) made.set(i, normal(random));
  return made;
}

/// All ranks of one training.
class RankMachine {
 public:
  RankMachine(const RankStep& step, std::int64_t shards, std::int64_t ranks)
      : step_(step), shards_(shards), states_(static_cast<std::size_t>(ranks)) {
    for (Named& states : states_)
      states = {{"w", random_rows({kWidth, kLabels}, 1)}, {"b", random_rows({kLabels}, 2)}, {"mean", random_rows({kWidth}, 3)}};
  }

  void run_step(unsigned turn) {
    const Accumulation& parts = *step_.accumulation;
    const std::int64_t own = shards_ / std::ssize(states_);
    const auto shard_inputs = [&](std::size_t rank, std::int64_t shard) {
      const std::int64_t number = static_cast<std::int64_t>(rank) * own + shard;
      Tensor label(DType::i64, {kRowsOfShard});
      for (std::int64_t i = 0; i < kRowsOfShard; ++i) label.set(i, static_cast<double>((number * 7 + i * 5) % kLabels));
      return Named{{"x", random_rows({kRowsOfShard, kWidth}, 100 * turn + static_cast<unsigned>(number))},
                   {"label", label},
                   {"shard", Tensor::of(DType::i64, {1}, {static_cast<double>(number)})}};
    };
    for (std::int64_t shard = 0; parts.count && shard < own; ++shard)
      run(*parts.count, [&](std::size_t rank) { return shard_inputs(rank, shard); });
    if (parts.count_exchange) run(*parts.count_exchange);
    for (std::int64_t shard = 0; shard < own; ++shard) {
      run(parts.shard, [&](std::size_t rank) { return shard_inputs(rank, shard); });
      const auto ones = static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(shard)));
      run(shard + 1 == own ? parts.total : parts.combine.at(ones));
    }
    if (parts.exchange) run(*parts.exchange);
    run(step_.graph, [](std::size_t) { return Named{{"learning_rate", Tensor::scalar(DType::f64, 0.25)}}; });
  }

  const Tensor& state(std::size_t rank, const std::string& name) const { return states_[rank].at(name); }

 private:
  template <class Inputs>
  void run(const Graph& graph, const Inputs& inputs) {
    std::vector<const Graph*> graphs;
    std::vector<Named> values;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      const Named given = inputs(rank);
      Named& known = values.emplace_back();
      for (const ir::State& state : graph.states())
        if (const auto held = states_[rank].find(state.value->name); held != states_[rank].end()) known.insert(*held);
      for (const ir::Value* input : graph.inputs()) known.insert_or_assign(input->name, given.at(input->name));
      graphs.push_back(&graph);
    }
    std::vector<ir::InterpretResult> results = ir::interpret_ranks(graphs, values);
    for (std::size_t rank = 0; rank < states_.size(); ++rank)
      for (auto& [name, value] : results[rank].states) states_[rank].insert_or_assign(name, std::move(value));
  }
  void run(const Graph& graph) {
    run(graph, [](std::size_t) { return Named(); });
  }

  const RankStep& step_;
  std::int64_t shards_;
  std::vector<Named> states_;
};

TEST(Distribute, StatesAreThoseOfOneRank) {
  for (const auto& [shards, numbers] :
       std::map<std::int64_t, std::vector<std::int64_t>>{{2, {2}}, {6, {3, 6}}, {8, {2, 4, 8}}, {12, {3, 6, 12}}}) {
    const RankStep alone = rank_step(shards, 1);
    ASSERT_FALSE(alone.accumulation->exchange);
    RankMachine one(alone, shards, 1);
    for (unsigned turn = 0; turn < 2; ++turn) one.run_step(turn);
    for (const std::int64_t ranks : numbers) {
      const RankStep shared = rank_step(shards, ranks);
      ASSERT_TRUE(shared.accumulation->exchange && shared.accumulation->count_exchange);
      RankMachine several(shared, shards, ranks);
      for (unsigned turn = 0; turn < 2; ++turn) several.run_step(turn);
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
        for (const char* name : {"w", "b", "mean", "w.exp_avg_sq", "w.gradient", "batch_loss"})
          EXPECT_EQ(several.state(rank, name), one.state(0, name)) << name << " of rank " << rank << " of " << ranks;
    }
  }
}

/// Few exchanges, whatever the number of arrays, and each program of the rest is the one of one rank.
TEST(Distribute, OneExchangeOfABucketEachWay) {
  const RankStep shared = rank_step(8, 4), alone = rank_step(8, 1);
  Graph exchange = ir::clone(*shared.accumulation->exchange);
  ir::expand(exchange);
  const auto count = [&](const ir::OpDef& op) {
    return std::ranges::count_if(exchange.nodes(), [&](const auto& node) { return node->op == &op; });
  };
  EXPECT_EQ(count(ir::ops::kAllToAll), 1) << "gradients and loss";
  EXPECT_EQ(count(ir::ops::kAllGather), 2) << "their sums, and what shards bring to the running mean";
}

TEST(Distribute, RanksThatShareNoEqualNodesAreRefused) {
  const auto refusal = [](std::int64_t shards, std::int64_t ranks) -> std::string {
    try {
      require_ranks(shards, ranks);
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  for (const auto& [shards, ranks] :
       std::vector<std::pair<int, int>>{{1, 1}, {8, 1}, {8, 2}, {8, 4}, {8, 8}, {6, 3}, {6, 6}, {24, 3}})
    EXPECT_EQ(refusal(shards, ranks), "") << shards << " by " << ranks;
  EXPECT_EQ(
      refusal(8, 3),
      "3 ranks share 8 micro-batches: wanted 1, 2, 4, 8 ranks, each with 1, 2, 4, 8, ... of them, or another --micro-batches, "
      "such as 24");
  for (const auto& [shards, ranks] : std::vector<std::pair<int, int>>{{1, 2}, {6, 2}, {8, 16}, {6, 1}})
    EXPECT_EQ(refusal(shards, ranks).empty(), ranks == 1) << shards << " by " << ranks;
}

TEST(Distribute, AStatisticThatShardsReadIsOfOneRank) {
  EXPECT_EQ(rank_step(4, 1, /*reads=*/true).accumulation->handed, std::vector<std::string>{"mean"});
  try {
    rank_step(4, 2, /*reads=*/true);
    ADD_FAILURE() << "the second rank would need what the first leaves";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("running statistic 'mean' is read by the step that it changes"), std::string::npos)
        << error.what();
  }
}

TEST(Distribute, LockStepTellsRanksThatPart) {
  Graph a("a"), b("b");
  for (Graph* graph : {&a, &b}) {
    ir::Builder builder(*graph);
    Var x = builder.input({DType::f32, {2, 3}}, "x");
    graph->add_output(
        builder.apply(graph == &a ? ir::ops::kAllToAll : ir::ops::kAllGather, {x}, {{"ranks", std::int64_t{2}}}).value);
  }
  const Graph* const graphs[] = {&a, &b};
  const Named values[] = {{{"x", random_rows({2, 3}, 1)}}, {{"x", random_rows({2, 3}, 2)}}};
  EXPECT_THROW(ir::interpret_ranks(graphs, values), UserError);
  EXPECT_THROW(ir::interpret(a, values[0]), UserError) << "one rank of two";
}

}  // namespace
}  // namespace gcomp::passes
