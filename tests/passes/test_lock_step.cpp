// Shards that know of each other: batch normalisation by the statistics of all, on the interpreter. What runs in lock step is
// compared with the shards as ranks that meet at each collective, and these with the batch that nobody cut.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "ir/base/integers.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/training/differentiate.h"
#include "passes/training/lock_step.h"

namespace gcomp::passes {
namespace {

using ir::Graph;
using ir::Var;

using TensorsByName = std::map<std::string, Tensor>;

constexpr std::int64_t kChannels = 3, kSide = 2, kScores = 4;

/// Images of few rows; scores of what is normalised twice. `reads`: a statistic that the step reads too.
Graph normalised_scores(DType dtype, std::int64_t rows, const ir::Attributes& shards, bool reads = false) {
  Graph graph("forward");
  ir::Builder b(graph);
  const auto parameter = [&](Shape shape, const char* name) {
    return b.wrap(graph.add_state({dtype, std::move(shape)}, name, ir::StateRole::parameter));
  };
  const auto statistic = [&](const char* name) {
    return b.wrap(graph.add_state({dtype, {kChannels}}, name, ir::StateRole::running_statistic));
  };
  Var x = b.input({dtype, {rows, kChannels, kSide}}, "x");
  Var mean = statistic("mean"), variance = statistic("variance"), extreme = statistic("extreme");
  std::vector<Var> norm =
      b.apply_many(ir::ops::kBatchNorm, {x, parameter({kChannels}, "scale"), parameter({kChannels}, "bias")}, shards);
  b.update(mean.value, mean * 0.9 + norm[1] * 0.1);
  b.update(variance.value, variance * 0.9 + norm[2] * 0.1);
  Var y = ir::ops::kTanh(norm[0]);
  if (reads) y = y + b.broadcast(extreme, y.shape(), {1});
  y = b.apply_many(ir::ops::kBatchNorm, {y, parameter({kChannels}, "scale2"), parameter({kChannels}, "bias2")}, shards)[0];
  graph.add_output(b.matmul(b.reshape(y, {rows, kChannels * kSide}), parameter({kChannels * kSide, kScores}, "w")).value);
  graph.rename(graph.outputs()[0], "logits");
  b.update(extreme.value, extreme * 0.5 + b.max(x, {0, 2}) * 0.5);  // of each shard
  return graph;
}

struct Cut {
  std::int64_t shards = 1, lock_step = 1;

  std::int64_t ranks() const { return shards / lock_step; }
  ir::Attributes attributes() const { return {{"shards", shards}, {"lock_step", lock_step}}; }
};

struct CutStep {
  Graph graph;
  std::optional<Accumulation> accumulation;
};

CutStep cut_step(DType dtype, std::int64_t rows, Cut cut, bool reads = false) {
  CutStep made{normalised_scores(dtype, rows, cut.attributes(), reads), {}};
  TrainingRequest request{.loss = parse_loss("cross_entropy"),
                          .optimizer = OptimizerSpec("sgd"),
                          .trained = {"scale", "bias", "scale2", "bias2", "w"},
                          .ranks = cut.ranks(),
                          .shards = cut.shards};
  made.accumulation = prepare(made.graph, {}, &request);
  return made;
}

Tensor normal_tensor(const TensorType& type, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.3, 1.0);
  Tensor made(type.dtype, type.shape);
  for (std::int64_t i = 0; i < made.elements(); ++i) made.set(i, normal(random));
  return made;
}

/// Values of all inputs and states but those of the step itself; `count` shards from `first` on.
TensorsByName values_for(const Graph& graph, std::int64_t first, std::int64_t count) {
  TensorsByName values;
  for (const ir::State& state : graph.states()) {
    const std::string& name = state.value->name;
    const auto seed = static_cast<unsigned>(std::hash<std::string>()(name) % 1000);
    values.emplace(name, state.role == ir::StateRole::scratch
                             ? Tensor::of(state.value->type.dtype, state.value->type.shape, {name == "loss_count" ? 40.0 : 0.0})
                             : normal_tensor(state.value->type, seed));
  }
  for (const ir::Value* input : graph.inputs()) {
    if (input->type.shape.empty()) continue;  // the rate
    TensorType part = input->type;
    part.shape[0] /= count;
    Tensor all(input->type);
    for (std::int64_t shard = 0; shard < count; ++shard) {
      const std::int64_t number = first + shard;
      const Tensor drawn = normal_tensor({DType::f64, part.shape}, static_cast<unsigned>(number) + 1);
      for (std::int64_t i = 0; i < part.elements(); ++i) {
        const double label = static_cast<double>((number * 5 + i * 3) % kScores);
        all.set(shard * part.elements() + i, input->name == "shard"   ? static_cast<double>(number)
                                             : input->name == "label" ? label
                                                                      : drawn.at(i));
      }
    }
    values.emplace(input->name, std::move(all));
  }
  return values;
}

/// One graph for all of `ranks`, each with `count` shards.
std::vector<ir::InterpretResult> run_all(const Graph& graph, std::int64_t ranks, std::int64_t count) {
  std::vector<TensorsByName> values;
  for (std::int64_t rank = 0; rank < ranks; ++rank) values.push_back(values_for(graph, rank * count, count));
  return ir::interpret_ranks(std::vector<const Graph*>(at(ranks), &graph), values);
}

Graph lowered(const Graph& shard) {
  Graph graph = ir::clone(shard);
  lower(graph);
  return graph;
}

double furthest(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.type(), b.type());
  double most = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) most = std::max(most, std::abs(a.at(i) - b.at(i)));
  return most;
}

TEST(LockStep, IsWhatTheShardsComputeTogether) {
  for (const auto& [shards, own, rows] : std::vector<std::array<std::int64_t, 3>>{
           {2, 2, 2}, {2, 1, 2}, {8, 8, 2}, {8, 4, 1}, {8, 1, 2}, {6, 2, 3}, {12, 4, 1}, {32, 32, 1}, {40, 40, 1}}) {
    const Cut cut{shards, own};
    const CutStep step = cut_step(DType::f64, rows, cut);
    ASSERT_TRUE(step.accumulation->lock_step);
    const Graph together = lowered(step.accumulation->shard);
    EXPECT_FALSE(in_lock_step(together));
    const auto wanted = run_all(step.accumulation->shard, shards, 1), found = run_all(together, cut.ranks(), own);
    for (std::int64_t rank = 0; rank < cut.ranks(); ++rank) {
      const auto& states = found[at(rank)].states;
      ASSERT_EQ(states.size(), wanted[0].states.size());
      for (const auto& [name, value] : states) {
        if (name.find(".shards") == name.npos) {  // what adds up
          EXPECT_LE(furthest(value, wanted[at(rank * own)].states.at(name)), 1e-12) << name << " of " << shards << ", " << own;
          continue;
        }
        for (std::int64_t shard = 0; shard < own; ++shard)  // a row of each
          for (std::int64_t c = 0; c < kChannels; ++c)
            EXPECT_NEAR(value.at(shard * kChannels + c), wanted[at(rank * own + shard)].states.at(name).at(shard * kChannels + c),
                        1e-12)
                << name << ", row " << shard << " of " << shards << ", " << own;
      }
    }
  }
}

Tensor tensor_sum(const Tensor& a, const Tensor& b) {
  Tensor sum(a.type());
  for (std::int64_t i = 0; i < a.elements(); ++i) sum.set(i, a.at(i) + b.at(i));
  return sum;
}

/// Of the ranks' sums, by halves: their number is a power of two.
Tensor added_by_halves(const std::vector<ir::InterpretResult>& ranks, const std::string& name, std::size_t first,
                       std::size_t count) {
  if (count == 1) return ranks[first].states.at(name);
  return tensor_sum(added_by_halves(ranks, name, first, count / 2), added_by_halves(ranks, name, first + count / 2, count / 2));
}

TEST(LockStep, TheNumberOfProcessesChangesNoBit) {
  constexpr std::int64_t kShards = 8;
  std::optional<std::vector<ir::InterpretResult>> alone;
  for (const std::int64_t own : {8, 4, 2, 1}) {
    // In f64, in which the interpreter rounds each sum of a kernel.
    const CutStep step = cut_step(DType::f64, 2, {kShards, own});
    const auto ranks = run_all(lowered(step.accumulation->shard), kShards / own, own);
    if (!alone) alone = ranks;
    for (const char* name : {"scale.gradient", "bias.gradient", "w.gradient", "batch_loss"})
      EXPECT_EQ(added_by_halves(ranks, name, 0, ranks.size()), (*alone)[0].states.at(name)) << name << ", " << own << " a process";
    for (const char* name : {"mean.shards", "extreme.shards"}) {
      const Tensor& all = (*alone)[0].states.at(name);
      for (std::int64_t i = 0; i < all.elements(); ++i) {
        const std::string state = std::string(name) + (own < kShards ? ".own" : "");
        EXPECT_EQ(ranks[at(i / (own * kChannels))].states.at(state).at(i % (own * kChannels)), all.at(i)) << state << ", " << own;
      }
    }
  }
}

/// Statistics of the batch move a running one once, those of shards for each in their order.
TEST(LockStep, RunningStatisticsOfTheBatchMoveOnce) {
  constexpr std::int64_t kShards = 4, kRows = 2;
  const CutStep step = cut_step(DType::f64, kRows, {kShards, kShards});
  const auto shard = run_all(lowered(step.accumulation->shard), 1, kShards);
  TensorsByName values = values_for(step.graph, 0, 1);
  const TensorsByName before = values;
  values.insert_or_assign("learning_rate", Tensor::scalar(DType::f64, 0.1));
  for (const auto& [name, value] : shard[0].states) values.insert_or_assign(name, value);
  const ir::InterpretResult after = ir::interpret(step.graph, values);
  const Tensor x = values_for(normalised_scores(DType::f64, kShards * kRows, {}), 0, kShards).at("x");
  for (std::int64_t c = 0; c < kChannels; ++c) {
    double sum = 0, squares = 0, extreme = before.at("extreme").at(c);
    for (std::int64_t row = 0; row < kShards * kRows; row += kRows) {
      double most = -100;
      for (std::int64_t i = 0; i < kRows * kSide; ++i) {
        const double value = x.at(((row + i / kSide) * kChannels + c) * kSide + i % kSide);
        sum += value, squares += value * value, most = std::max(most, value);
      }
      extreme = extreme * 0.5 + most * 0.5;
    }
    const double count = kShards * kRows * kSide, mean = sum / count;
    EXPECT_NEAR(after.states.at("mean").at(c), before.at("mean").at(c) * 0.9 + mean * 0.1, 1e-12);
    EXPECT_NEAR(after.states.at("variance").at(c), before.at("variance").at(c) * 0.9 + (squares / count - mean * mean) * 0.1,
                1e-12);
    EXPECT_NEAR(after.states.at("extreme").at(c), extreme, 1e-12);
  }
}

/// A loss that looks at all three results, of one shard or of all rows.
Graph loss_of_norm(std::int64_t rows, std::int64_t shards) {
  Graph graph("norm");
  ir::Builder b(graph);
  const auto state = [&](Shape shape, const char* name) {
    return b.wrap(graph.add_state({DType::f64, std::move(shape)}, name, ir::StateRole::parameter));
  };
  Var x = state({rows, kChannels, kSide}, "x"), scale = state({kChannels}, "scale"), bias = state({kChannels}, "bias");
  const std::vector<Var> norm = b.apply_many(ir::ops::kBatchNorm, {x, scale, bias}, {{"shards", shards}, {"epsilon", 0.01}});
  Var of_rows = b.sum(norm[0] * b.input(x.type(), "weights"), {0, 1, 2});
  Var of_statistics = b.sum(norm[1] * b.input(scale.type(), "of_mean") + norm[2] * b.input(scale.type(), "of_variance"), {0});
  graph.add_output((of_rows + of_statistics / static_cast<double>(shards)).value);  // the shards' losses add up
  for (ir::Value* gradient : differentiate(graph, graph.outputs()[0], {x.value, scale.value, bias.value}))
    graph.add_output(gradient);
  for (const Var& result : norm) graph.add_output(result.value);
  return graph;
}

TensorsByName norm_values(std::int64_t rows) {
  TensorsByName values;
  unsigned seed = 0;
  for (const char* name : {"x", "weights"}) values.emplace(name, normal_tensor({DType::f64, {rows, kChannels, kSide}}, ++seed));
  for (const char* name : {"scale", "bias", "of_mean", "of_variance"})
    values.emplace(name, normal_tensor({DType::f64, {kChannels}}, ++seed));
  return values;
}

TEST(SynchronizedBatchNorm, IsThatOfTheBatchAndSoAreItsGradients) {
  for (const auto& [shards, rows] : std::vector<std::array<std::int64_t, 2>>{{2, 3}, {3, 2}, {8, 1}, {17, 1}}) {
    const TensorsByName all = norm_values(shards * rows);
    const auto whole = ir::interpret(loss_of_norm(shards * rows, 1), all).outputs;
    const Graph graph = loss_of_norm(rows, shards);
    std::vector<TensorsByName> values(at(shards), all);
    for (std::int64_t s = 0; s < shards; ++s)
      for (const char* name : {"x", "weights"}) {
        Tensor part(DType::f64, {rows, kChannels, kSide});
        for (std::int64_t i = 0; i < part.elements(); ++i) part.set(i, all.at(name).at(s * part.elements() + i));
        values[at(s)].insert_or_assign(name, part);
      }
    const auto parts = ir::interpret_ranks(std::vector<const Graph*>(at(shards), &graph), values);
    for (const std::size_t summed : {0, 2, 3}) {  // loss, gradients of scale and bias
      Tensor sum = parts[0].outputs[summed];
      for (std::size_t s = 1; s < parts.size(); ++s) sum = tensor_sum(sum, parts[s].outputs[summed]);
      EXPECT_LE(furthest(sum, whole[summed]), 1e-11) << "output " << summed << " of " << shards;
    }
    for (const std::size_t of_rows : {1, 4})  // the gradient of x, y
      for (std::int64_t i = 0; i < whole[of_rows].elements(); ++i) {
        const std::int64_t part = rows * kChannels * kSide;
        EXPECT_NEAR(parts[at(i / part)].outputs[of_rows].at(i % part), whole[of_rows].at(i), 1e-11)
            << "output " << of_rows << " of " << shards;
      }
    for (const auto& part : parts)
      for (const std::size_t of_all : {5, 6}) EXPECT_LE(furthest(part.outputs[of_all], whole[of_all]), 1e-12) << shards;
  }
}

/// Far from zero: squares of values less the square of their mean would leave nothing of the variance in f32.
TEST(SynchronizedBatchNorm, LosesNoVarianceToALargeMean) {
  constexpr std::int64_t kShards = 4, kRows = 3;
  Graph graph("norm");
  ir::Builder b(graph);
  Var x = b.input({DType::f32, {kRows, 1}}, "x");
  Var one = b.full({DType::f32, {1}}, 1);
  graph.add_output(b.apply_many(ir::ops::kBatchNorm, {x, one, one}, {{"shards", kShards}})[2].value);
  std::vector<TensorsByName> values;
  double sum = 0, squares = 0;
  for (std::int64_t s = 0; s < kShards; ++s) {
    Tensor part(DType::f32, {kRows, 1});
    for (std::int64_t i = 0; i < kRows; ++i) {
      const double off = static_cast<double>((s * kRows + i) * 7 % 12) / 8;
      part.set(i, 16384 + off);
      sum += off, squares += off * off;
    }
    values.push_back({{"x", part}});
  }
  const double count = kShards * kRows, wanted = squares / count - sum * sum / count / count;
  for (const auto& result : ir::interpret_ranks(std::vector<const Graph*>(at(kShards), &graph), values))
    EXPECT_NEAR(result.outputs[0].at(0), wanted, 0.002 * wanted);
}

TEST(LockStep, IsNothingWithoutStatisticsOfAllShards) {
  CutStep step{normalised_scores(DType::f32, 2, {}), {}};
  TrainingRequest request{.loss = parse_loss("cross_entropy"), .optimizer = OptimizerSpec("sgd"), .trained = {"w"}, .shards = 4};
  step.accumulation = prepare(step.graph, {}, &request);
  EXPECT_FALSE(step.accumulation->lock_step);
  EXPECT_EQ(step.accumulation->combine.size(), 2u);
  EXPECT_FALSE(lock_step(step.accumulation->shard));
}

TEST(LockStep, RefusesAStatisticThatGoesFromShardToShard) {
  try {
    cut_step(DType::f32, 2, {4, 4}, /*reads=*/true);
    FAIL() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "running statistic 'extreme' is read by the step that it changes, so that each micro-batch needs the one before, and "
        "--sync-batchnorm has them run at once: leave one of --micro-batches and --sync-batchnorm out");
  }
}

TEST(LockStep, OpsRefuseShardsThatDoNotFit) {
  Graph graph("wrong");
  ir::Builder b(graph);
  Var x = b.input({DType::f32, {1, 3}}, "x"), c = b.full({DType::f32, {3}}, 1);
  EXPECT_THROW(b.apply(ir::ops::kShardGather, {x}, {{"ranks", std::int64_t{6}}, {"lock_step", std::int64_t{4}}}), UserError);
  EXPECT_THROW(b.apply(ir::ops::kShardSum, {x}, {{"ranks", std::int64_t{0}}}), UserError);
  EXPECT_THROW(b.apply_many(ir::ops::kBatchNorm, {x, c, c}, {{"shards", std::int64_t{3}}, {"lock_step", std::int64_t{2}}}),
               UserError);
  EXPECT_THROW(b.apply_many(ir::ops::kBatchNorm, {x, c, c}), UserError) << "one row alone";
  EXPECT_NO_THROW(b.apply_many(ir::ops::kBatchNorm, {x, c, c}, {{"shards", std::int64_t{2}}})) << "two rows in two shards";
}

}  // namespace
}  // namespace gcomp::passes
