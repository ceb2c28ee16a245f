// A step in shards that ranks share, run by the interpreter in lock step: its states are those of one rank, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"
#include "passes/pipeline.h"
#include "passes/training/distribute.h"

namespace gcomp::passes {
namespace {

using ir::Graph;
using ir::Var;

using Named = std::map<std::string, Tensor>;

constexpr std::int64_t kRowsOfShard = 2, kWidth = 5, kLabels = 3;

struct RankOptions {
  bool reads = false;
  Sharding sharding = Sharding::optimizer;
  const char* optimizer = "adamw";
  int matrices = 0;  ///< v0, v1, ..., all alike, before w
};

std::string matrix_name(int i) { return concat("v", i); }

/// A running mean of the rows, which one process hands on from shard to shard where something reads it.
Graph scores(std::int64_t rows, const RankOptions& options = {}) {
  Graph graph("forward");
  ir::Builder b(graph);
  Var x = b.input({DType::f32, {rows, kWidth}}, "x");
  Var w = b.wrap(graph.add_state({DType::f32, {kWidth, kLabels}}, "w", ir::StateRole::parameter));
  Var bias = b.wrap(graph.add_state({DType::f32, {kLabels}}, "b", ir::StateRole::parameter));
  Var mean = b.wrap(graph.add_state({DType::f32, {kWidth}}, "mean", ir::StateRole::running_statistic));
  Var last = options.reads ? x - b.broadcast(mean, x.shape()) : x;
  for (int i = 0; i < options.matrices; ++i)
    last = b.matmul(last, b.wrap(graph.add_state({DType::f32, {kWidth, kWidth}}, matrix_name(i), ir::StateRole::parameter)));
  graph.add_output((b.matmul(last, w) + b.broadcast(bias, {rows, kLabels})).value);
  graph.rename(graph.outputs()[0], "logits");
  b.update(mean.value, mean * 0.9 + b.mean(x, {0}) * 0.1);
  return graph;
}

struct RankStep {
  Graph graph;
  std::optional<Accumulation> accumulation;
};

RankStep rank_step(std::int64_t shards, std::int64_t ranks, const RankOptions& options = {}) {
  RankStep made{scores(kRowsOfShard, options), {}};
  TrainingRequest request{.loss = parse_loss("cross_entropy(weight=[0.5, 1.5, 2])"),
                          .optimizer = OptimizerSpec(options.optimizer),
                          .trained = {"w", "b"},
                          .step = {.clipping = {.norm = 0.5}},
                          .ranks = ranks,
                          .sharding = options.sharding,
                          .shards = shards};
  for (int i = 0; i < options.matrices; ++i) request.trained.push_back(matrix_name(i));
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
  RankMachine(const RankStep& step, std::int64_t shards, std::int64_t ranks, Sharding sharding = Sharding::optimizer)
      : step_(step), shards_(shards), in_turns_(ranks > 1 && takes_turns(sharding)), states_(static_cast<std::size_t>(ranks)) {
    for (Named& states : states_)
      states = {{"w", random_rows({kWidth, kLabels}, 1)}, {"b", random_rows({kLabels}, 2)}, {"mean", random_rows({kWidth}, 3)}};
    for (Named& states : states_)
      for (int i = 0; i < 8; ++i) states[matrix_name(i)] = random_rows({kWidth, kWidth}, static_cast<unsigned>(4 + i));
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      for (const ShardedState& one : step.accumulation->sharded)
        if (Named& states = states_[static_cast<std::size_t>(rank)]; states.contains(one.name))
          states[one.own] = share(states.at(one.name), one, rank);
  }

  /// What the rank holds of a state.
  static Tensor share(const Tensor& whole, const ShardedState& one, std::int64_t rank) {
    Tensor own(one.own_type());
    for (std::int64_t i = one.begin(rank); i < one.end(rank); ++i) own.set(i - one.begin(rank), whole.at(i));
    return own;
  }

  void run_step(unsigned turn) {
    const Accumulation& parts = *step_.accumulation;
    const std::int64_t own = shards_ / std::ssize(states_);
    const auto shard_inputs = [&](std::size_t rank, std::int64_t shard) {
      const std::int64_t number =
          in_turns_ ? shard * std::ssize(states_) + static_cast<std::int64_t>(rank) : static_cast<std::int64_t>(rank) * own + shard;
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
      const ir::OwnNodes nodes = ir::own_nodes(shards_, std::ssize(states_), in_turns_);
      const std::int64_t of_node = shard % nodes.shards;
      const auto ones = static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(of_node)));
      const auto node = static_cast<std::size_t>(shard / nodes.shards);
      if (of_node + 1 < nodes.shards) run(parts.combine.at(ones));
      else if (node < parts.totals.size()) run(parts.totals[node]);
    }
    for (std::size_t i = 0; i < parts.exchanges.size(); ++i) {
      if (i < parts.bucket_totals.size()) run(parts.bucket_totals[i]);
      run(parts.exchanges[i]);
    }
    run(step_.graph, [](std::size_t) { return Named{{"learning_rate", Tensor::scalar(DType::f64, 0.25)}}; });
    for (const Graph& gather : parts.gathers) run(gather);
  }

  const Tensor& state(std::size_t rank, const std::string& name) const { return states_[rank].at(name); }

  /// All that the rank has of it: the whole, else its share.
  void expect_state(std::size_t rank, const std::string& name, const Tensor& whole, bool whole_parameters) const {
    const std::vector<ShardedState>& sharded = step_.accumulation->sharded;
    const auto one = std::ranges::find(sharded, name, &ShardedState::name);
    const bool is_parameter = name == "w" || name == "b" || name[0] == 'v';
    const bool held_whole = one == sharded.end() || (whole_parameters && is_parameter && name.find('.') == std::string::npos);
    if (held_whole) { EXPECT_EQ(state(rank, name), whole) << name; }
    if (one == sharded.end() || (one->owner && *one->owner != static_cast<std::int64_t>(rank))) return;
    EXPECT_EQ(state(rank, one->own), share(whole, *one, static_cast<std::int64_t>(rank))) << one->own;
  }

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
  bool in_turns_;
  std::vector<Named> states_;
};

using Numbers = std::map<std::int64_t, std::vector<std::int64_t>>;
const Numbers kNumbers{{2, {2}}, {6, {2, 3, 6}}, {8, {2, 4, 8}}, {9, {3}}, {10, {2, 5}}, {12, {2, 3, 4, 6, 12}}, {14, {2}}};

void expect_states_of_one_rank(const RankOptions& options, const Numbers& numbers, const std::vector<std::string>& names) {
  for (const auto& [shards, ranks_of] : numbers) {
    const RankStep alone = rank_step(shards, 1, options);
    ASSERT_TRUE(alone.accumulation->exchanges.empty());
    ASSERT_TRUE(alone.accumulation->sharded.empty());
    RankMachine one(alone, shards, 1);
    for (unsigned turn = 0; turn < 2; ++turn) one.run_step(turn);
    for (const std::int64_t ranks : ranks_of) {
      SCOPED_TRACE(concat(shards, " shards, ", ranks, " ranks"));
      const RankStep shared = rank_step(shards, ranks, options);
      ASSERT_TRUE(!shared.accumulation->exchanges.empty() && shared.accumulation->count_exchange);
      RankMachine several(shared, shards, ranks, options.sharding);
      for (unsigned turn = 0; turn < 2; ++turn) several.run_step(turn);
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
        for (const std::string& name : names)
          several.expect_state(rank, name, one.state(0, name), options.sharding != Sharding::parameters);
    }
  }
}

TEST(Distribute, StatesAreThoseOfOneRank) {
  expect_states_of_one_rank({}, kNumbers, {"w", "b", "mean", "w.exp_avg_sq", "b.exp_avg", "w.gradient", "batch_loss", "step"});
}

TEST(Distribute, StatesAreThoseOfOneRankWhereEachHoldsAll) {
  expect_states_of_one_rank({.sharding = Sharding::none}, {{6, {2, 3}}, {8, {2, 4}}},
                            {"w", "b", "mean", "w.exp_avg_sq", "b.exp_avg", "w.gradient", "batch_loss"});
}

TEST(Distribute, StatesAreThoseOfOneRankWhereEachHoldsItsShareOfAll) {
  for (const Sharding sharding : {Sharding::gradients, Sharding::parameters}) {
    SCOPED_TRACE(static_cast<int>(sharding));
    expect_states_of_one_rank({.sharding = sharding}, {{2, {2}}, {3, {3}}, {6, {2, 6}}, {8, {2, 4, 8}}},
                              {"w", "b", "mean", "w.exp_avg_sq", "b.exp_avg", "w.gradient", "batch_loss"});
    expect_states_of_one_rank({.sharding = sharding, .optimizer = "muon"}, {{8, {4}}},
                              {"w", "b", "w.momentum_buffer", "b.exp_avg", "mean"});
  }
}

/// A rank's program has no whole gradient and no whole parameter.
TEST(Distribute, SharesAreAllThatARankKeeps) {
  for (const Sharding sharding : {Sharding::gradients, Sharding::parameters}) {
    const RankStep shared = rank_step(8, 4, {.sharding = sharding});
    std::vector<std::string> names;
    for (const ir::State& state : shared.accumulation->shard.states()) names.push_back(state.value->name);
    const auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
    EXPECT_TRUE(has("w.gradient.own") && !has("w.gradient"));
    EXPECT_EQ(has("w"), sharding == Sharding::gradients);
    EXPECT_EQ(has("w.own"), sharding == Sharding::parameters);
    EXPECT_EQ(shared.accumulation->gathers.empty(), sharding == Sharding::parameters);
  }
}

/// Two layers, whose backward pass reads the second weight again, through its cast: it is gathered for each pass, and cast again.
TEST(Distribute, ParametersAreGatheredOnceForEachPass) {
  Graph forward("forward");
  ir::Builder b(forward);
  Var x = b.input({DType::f32, {kRowsOfShard, kWidth}}, "x");
  const auto weight = [&](const char* name, std::int64_t to) {
    return b.cast(b.cast(b.wrap(forward.add_state({DType::f32, {kWidth, to}}, name, ir::StateRole::parameter)), DType::bf16),
                  DType::f32);
  };
  forward.add_output(b.matmul(b.matmul(x, weight("w1", kWidth)), weight("w2", kLabels)).value);
  TrainingRequest request{.loss = parse_loss("cross_entropy"),
                          .optimizer = OptimizerSpec("sgd"),
                          .trained = {"w1", "w2"},
                          .ranks = 4,
                          .sharding = Sharding::parameters,
                          .shards = 8};
  const std::optional<Accumulation> made = prepare(forward, {}, &request);
  int with_w2 = 0, casts = 0;
  for (const auto& node : made->shard.nodes()) {
    if (node->op == &ir::ops::kBucket)
      with_w2 += std::ranges::any_of(node->operands, [](const ir::Value* value) { return value->name == "w2.own"; });
    casts += node->op == &ir::ops::kCast && node->operands[0]->type.shape == Shape{kWidth, kLabels} &&
             node->result()->type.dtype == DType::bf16;
  }
  EXPECT_EQ(with_w2, 2) << "gathered for the forward pass and for the backward pass";
  EXPECT_GE(casts, 2) << "and cast in each";
}

/// A rule that looks at whole tensors: those alike are owned in turn, gradients and parameters are in shares as any.
TEST(Distribute, WholeTensorsHaveOwners) {
  const RankStep shared = rank_step(8, 2, {.optimizer = "muon", .matrices = 3});
  std::map<std::string, std::pair<std::string, std::optional<std::int64_t>>> held;
  for (const ShardedState& one : shared.accumulation->sharded) held[one.name] = {one.own, one.owner};
  const decltype(held) wanted{{"w", {"w.own", {}}},
                              {"w.gradient", {"w.gradient.own", {}}},
                              {"w.momentum_buffer", {"w.momentum_buffer.own", 0}},
                              {"b", {"b.own", {}}},
                              {"b.gradient", {"b.gradient.own", {}}},
                              {"b.exp_avg", {"b.exp_avg.own", {}}},
                              {"b.exp_avg_sq", {"b.exp_avg_sq.own", {}}},
                              {"v0", {"v0.own", {}}},
                              {"v0.gradient", {"v0.gradient.own", {}}},
                              {"v0.momentum_buffer", {"v0.momentum_buffer.own", 0}},
                              {"v1", {"v1.own", {}}},
                              {"v1.gradient", {"v1.gradient.own", {}}},
                              {"v1.momentum_buffer", {"v0.momentum_buffer.own", 1}},
                              {"v2", {"v2.own", {}}},
                              {"v2.gradient", {"v2.gradient.own", {}}},
                              {"v2.momentum_buffer", {"v2.momentum_buffer.own", 0}}};
  EXPECT_EQ(held, wanted);
}

TEST(Distribute, StatesAreThoseOfOneRankWhereParametersHaveOwners) {
  const Numbers numbers{{6, {2, 3, 6}}, {8, {2, 4, 8}}};
  const std::map<std::string, std::vector<std::string>> states{
      {"muon", {"momentum_buffer"}}, {"lamb", {"exp_avg", "exp_avg_sq"}}, {"adafactor", {"row_var", "col_var"}}};
  const auto names_of = [&](const std::string& optimizer, int matrices) {
    std::vector<std::string> matrices_of = {"w"}, names = {"b", "mean", "b.gradient"};
    for (int i = 0; i < matrices; ++i) matrices_of.push_back(matrix_name(i));
    for (const std::string& matrix : matrices_of) {
      names.push_back(matrix);
      for (const std::string& state : states.at(optimizer)) names.push_back(concat(matrix, ".", state));
    }
    return names;
  };
  for (const int matrices : {0, 1, 5})
    for (const char* optimizer : {"muon", "lamb", "adafactor"}) {
      SCOPED_TRACE(concat(optimizer, " of ", matrices, " like matrices"));
      expect_states_of_one_rank({.optimizer = optimizer, .matrices = matrices}, numbers, names_of(optimizer, matrices));
    }
  for (const Sharding sharding : {Sharding::gradients, Sharding::parameters})
    expect_states_of_one_rank({.sharding = sharding, .optimizer = "lamb(max_grad_norm=0.1)", .matrices = 5}, {{8, {2, 8}}},
                              names_of("lamb", 5));
}

/// A product for each stack and step of Newton-Schulz, however many matrices there are.
TEST(Distribute, AnOwnerDoesNoMoreThanItsOwn) {
  const auto products = [](std::int64_t ranks) {
    const RankStep step = rank_step(8, ranks, {.optimizer = "muon(ns_steps=1)", .matrices = 8});
    return std::ranges::count_if(step.graph.nodes(), [](const auto& node) { return node->op == &ir::ops::kMatmul; });
  };
  EXPECT_EQ(products(1), 9 * 3);
  EXPECT_EQ(products(2), 5 * 3);
  EXPECT_EQ(products(8), 2 * 3) << "w, and one of the eight";
}

/// Moments of a rank are a share, whose parts begin at multiples of 64 elements.
TEST(Distribute, EachHoldsItsShareOfTheOptimizersStates) {
  const RankStep shared = rank_step(8, 2);
  const auto found = std::ranges::find(shared.accumulation->sharded, "w.exp_avg", &ShardedState::name);
  ASSERT_NE(found, shared.accumulation->sharded.end());
  EXPECT_EQ(found->share, 4 * 64) << "15 elements in eight parts, of which each rank has four";
  EXPECT_EQ(found->begin(0), 0);
  EXPECT_EQ(found->end(0), 15);
  EXPECT_EQ(found->end(1), 15);
}

/// Few exchanges, whatever the number of arrays.
TEST(Distribute, OneExchangeOfABucketEachWay) {
  const RankStep shared = rank_step(8, 4);
  const auto count = [&](const Graph& graph, const ir::OpDef& op) {
    Graph expanded = ir::clone(graph);
    ir::expand(expanded);
    return std::ranges::count_if(expanded.nodes(), [&](const auto& node) { return node->op == &op; });
  };
  const std::vector<Graph>&exchanges = shared.accumulation->exchanges, &gathers = shared.accumulation->gathers;
  ASSERT_EQ(exchanges.size(), 2u) << "of the gradients; of the loss and the running mean";
  EXPECT_EQ(count(exchanges[0], ir::ops::kAllToAll), 1);
  EXPECT_EQ(count(exchanges[0], ir::ops::kAllGather), 0);
  EXPECT_EQ(count(exchanges[1], ir::ops::kAllToAll), 1);
  EXPECT_EQ(count(exchanges[1], ir::ops::kAllGather), 2);
  ASSERT_EQ(gathers.size(), 1u);
  EXPECT_EQ(gathers[0].nodes().size(), 6u) << "bucket, all_gather, reshape, unbucket, two updates";
}

TEST(Distribute, RanksThatDoNotDivideTheShardsAreRefused) {
  const auto refusal = [](std::int64_t shards, std::int64_t ranks) -> std::string {
    try {
      require_ranks(shards, ranks);
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  for (const auto& [shards, ranks] : std::vector<std::pair<int, int>>{{1, 1}, {8, 1}, {8, 2}, {8, 8}, {6, 3}, {6, 2}, {15, 5}})
    EXPECT_EQ(refusal(shards, ranks), "") << shards << " by " << ranks;
  EXPECT_EQ(refusal(8, 3),
            "3 ranks share 8 micro-batches: wanted 1, 2, 4, 8 ranks, or --micro-batches and --batch that are multiples of 3");
  for (const auto& [shards, ranks] : std::vector<std::pair<int, int>>{{1, 2}, {6, 4}, {8, 16}})
    EXPECT_NE(refusal(shards, ranks), "") << shards << " by " << ranks;
}

TEST(Distribute, AStatisticThatShardsReadIsOfOneRank) {
  EXPECT_EQ(rank_step(4, 1, {.reads = true}).accumulation->handed, std::vector<std::string>{"mean"});
  try {
    rank_step(4, 2, {.reads = true});
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
