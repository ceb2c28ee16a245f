// A training step in shards, run by the interpreter: the order of its sums, and that it is the step of the whole batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"
#include "passes/pipeline.h"

namespace gcomp::passes {
namespace {

using ir::Graph;
using ir::Var;

constexpr std::int64_t kShardRows = 3, kClasses = 4;

/// Logits of rows, a third of which are dropped, and a running mean of them.
Graph forward(DType dtype, std::int64_t rows) {
  Graph graph("forward");
  ir::Builder b(graph);
  const TensorType counter{DType::i64, {}};
  Var x = b.input({dtype, {rows, 5}}, "x");
  Var w = b.wrap(graph.add_state({dtype, {5, kClasses}}, "w", ir::StateRole::parameter));
  Var bias = b.wrap(graph.add_state({dtype, {kClasses}}, "b", ir::StateRole::parameter));
  Var seed = b.wrap(graph.add_state(counter, "random_seed", ir::StateRole::counter, 7.0));
  Var step = b.wrap(graph.add_state(counter, "random_step", ir::StateRole::counter, 3.0));
  Var mean = b.wrap(graph.add_state({dtype, {5}}, "mean", ir::StateRole::running_statistic));
  Var drawn = b.apply(ir::ops::kRandomUniform, {seed, step}, {{"shape", x.shape()}, {"op_id", std::int64_t{1}}});
  Var kept = b.select(b.like(drawn, 1.0 / 3) <= drawn, x, b.like(x, 0));
  graph.add_output((b.matmul(kept, w) + b.broadcast(bias, {rows, kClasses})).value);
  graph.rename(graph.outputs()[0], "logits");
  b.update(step.value, step + 1.0);
  b.update(mean.value, mean * 0.5 + b.mean(x, {0}) * 0.5);
  return graph;
}

struct MadeStep {
  Graph graph;
  std::optional<Accumulation> accumulation;
};

/// `rows` at once: of one shard where there are several.
MadeStep step_of(DType dtype, std::int64_t rows, std::int64_t shards, const std::string& loss) {
  MadeStep made{forward(dtype, rows), {}};
  TrainingRequest request{.loss = parse_loss(loss), .optimizer = OptimizerSpec("sgd"), .trained = {"w", "b"}, .shards = shards};
  made.accumulation = prepare(made.graph, {}, &request);
  return made;
}

using Values = std::map<std::string, Tensor>;

/// Rows [first, first + count) along axis 0.
Tensor rows_of(const Tensor& all, std::int64_t first, std::int64_t count) {
  Shape shape = all.shape();
  const std::int64_t width = all.elements() / shape[0];
  shape[0] = count;
  Tensor part(all.dtype(), shape);
  for (std::int64_t i = 0; i < part.elements(); ++i) part.set(i, all.at(first * width + i));
  return part;
}

/// Runs steps of programs on states that they share.
class Machine {
 public:
  explicit Machine(Values states) : states_(std::move(states)) {}

  std::vector<Tensor> run(const Graph& graph, const Values& inputs) {
    Values values = states_;
    for (const ir::State& state : graph.states())
      if (state.fill && !states_.contains(state.value->name))
        values.emplace(state.value->name, Tensor::of(state.value->type.dtype, state.value->type.shape, {*state.fill}));
    for (const ir::Value* input : graph.inputs()) values.insert_or_assign(input->name, inputs.at(input->name));
    ir::InterpretResult result = ir::interpret(graph, values);
    for (auto& [name, value] : result.states) states_.insert_or_assign(name, value);
    return result.outputs;
  }

  /// The loss of one step, on all rows; `gradients` gets what each shard gave.
  double step(const MadeStep& made, const Values& data, std::int64_t shards, std::vector<Tensor>* gradients = nullptr) {
    Values inputs = data;
    inputs.emplace("learning_rate", Tensor::scalar(DType::f64, 0.25));
    if (!made.accumulation) return run(made.graph, inputs)[0].at(0);
    const Accumulation& parts = *made.accumulation;
    const auto of_shard = [&](std::int64_t shard) {
      Values part;
      for (const auto& [name, array] : data) {
        const std::int64_t count = array.shape()[0] / shards;
        part.emplace(name, rows_of(array, shard * count, count));
      }
      part.emplace("shard", Tensor::of(DType::i64, {1}, {static_cast<double>(shard)}));
      return part;
    };
    for (std::int64_t shard = 0; parts.count && shard < shards; ++shard) run(*parts.count, of_shard(shard));
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      run(parts.shard, of_shard(shard));
      if (gradients) gradients->push_back(states_.at("w.gradient"));
      const auto ones = static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(shard)));
      run(shard + 1 == shards ? parts.totals.at(0) : parts.combine.at(ones), {});
    }
    return run(made.graph, inputs)[0].at(0);
  }

  const Tensor& state(const std::string& name) const { return states_.at(name); }

 private:
  Values states_;
};

Tensor drawn(DType dtype, const Shape& shape, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<double> normal;
  Tensor made(dtype, shape);
  for (std::int64_t i = 0; i < made.elements(); ++i) made.set(i, normal(random));
  return made;
}

Values data_of(DType dtype, std::int64_t rows) {
  Tensor label(DType::i64, {rows});
  for (std::int64_t i = 0; i < rows; ++i) label.set(i, i % 3 == 1 ? -100.0 : static_cast<double>((i * 7) % kClasses));
  return {{"x", drawn(dtype, {rows, 5}, 1)}, {"label", label}};
}

Values states_of(DType dtype) {
  return {{"w", drawn(dtype, {5, kClasses}, 2)}, {"b", drawn(dtype, {kClasses}, 4)}, {"mean", drawn(dtype, {5}, 3)}};
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor sum(a.type());
  for (std::int64_t i = 0; i < a.elements(); ++i) sum.set(i, static_cast<float>(a.at(i)) + static_cast<float>(b.at(i)));
  return sum;
}

/// As accumulate.h has it, said another way: the largest power of two of shards, halved until one is left, plus the rest likewise.
Tensor tree_sum(const std::vector<Tensor>& parts, std::size_t first, std::size_t count) {
  if (count == 1) return parts[first];
  const std::size_t left = std::has_single_bit(count) ? count / 2 : std::bit_floor(count);
  return sum_of(tree_sum(parts, first, left), tree_sum(parts, first + left, count - left));
}

TEST(Accumulate, GradientsAddUpAsABalancedTree) {
  for (std::int64_t shards = 2; shards <= 17; ++shards) {
    const MadeStep made = step_of(DType::f32, kShardRows, shards, "cross_entropy(weight=[0.5, 1.5, 2, 1])");
    ASSERT_TRUE(made.accumulation && made.accumulation->count);
    EXPECT_EQ(made.accumulation->combine.size(), static_cast<std::size_t>(ir::tree_levels(shards)));
    Machine machine(states_of(DType::f32));
    std::vector<Tensor> gradients;
    machine.step(made, data_of(DType::f32, shards * kShardRows), shards, &gradients);
    ASSERT_EQ(static_cast<std::int64_t>(gradients.size()), shards);
    EXPECT_EQ(machine.state("w.gradient"), tree_sum(gradients, 0, gradients.size())) << shards << " shards";
  }
}

/// One array of gradients for each level, and one that shards write: log2(shards) + 1 where that is a whole number.
TEST(Accumulate, MemoryGrowsWithTheLevelsOfTheTree) {
  for (const auto& [shards, levels] : std::map<std::int64_t, int>{{2, 1}, {3, 2}, {4, 2}, {8, 3}, {9, 4}, {64, 6}})
    EXPECT_EQ(ir::tree_levels(shards), levels) << shards;
}

/// Losses over all rows, labels that are ignored, dropped elements, counters and parameters are those of the undivided step.
TEST(Accumulate, IsTheStepOfTheWholeBatch) {
  for (const std::string loss : {"cross_entropy", "cross_entropy(weight=[0.5, 1.5, 2, 1], label_smoothing=0.1)", "mse(logits, 0.5)",
                                 "cross_entropy(reduction=sum)/4 - 2*mse(logits, 0.5) + 1", "nll(logits, label)"}) {
    for (const std::int64_t shards : {2, 3, 4, 8}) {
      const std::int64_t rows = shards * kShardRows;
      Machine whole(states_of(DType::f64)), parts(states_of(DType::f64));
      const MadeStep at_once = step_of(DType::f64, rows, 1, loss), cut = step_of(DType::f64, kShardRows, shards, loss);
      ASSERT_TRUE(!at_once.accumulation && cut.accumulation);
      EXPECT_TRUE(cut.accumulation->averaged.empty());
      for (int turn = 0; turn < 3; ++turn) {
        const double wanted = whole.step(at_once, data_of(DType::f64, rows), 1);
        EXPECT_NEAR(parts.step(cut, data_of(DType::f64, rows), shards), wanted, 1e-12 * std::abs(wanted))
            << loss << " in " << shards;
      }
      EXPECT_EQ(parts.state("random_step"), whole.state("random_step")) << "counts steps";
      for (std::int64_t i = 0; i < whole.state("w").elements(); ++i)
        EXPECT_NEAR(parts.state("w").at(i), whole.state("w").at(i), 1e-12) << loss << " in " << shards;
    }
  }
}

/// All gradients and the loss in one launch, and the tree of a count in one. The statistics follow in the rest of the step.
TEST(Accumulate, SumsTakeOneLaunchEach) {
  MadeStep made = step_of(DType::f32, kShardRows, 6, "cross_entropy");
  const auto launches_of = [](Graph& graph) {
    lower(graph, {.disabled = {"simplify"}});
    return std::ranges::count_if(graph.nodes(), [](const auto& node) { return node->op->kind == ir::Kind::kernel; });
  };
  for (Graph& combine : made.accumulation->combine) EXPECT_EQ(launches_of(combine), 1) << combine.name();
  EXPECT_EQ(launches_of(made.accumulation->totals.at(0)), 1);
  lower(*made.accumulation->count);
  EXPECT_EQ(made.accumulation->count->nodes().size() - 4, 1u) << "beside updates of three levels and the total";
}

TEST(Accumulate, StatisticsFollowTheShards) {
  constexpr std::int64_t kShards = 4, kRows = kShards * kShardRows;
  Machine machine(states_of(DType::f64));
  const Values data = data_of(DType::f64, kRows);
  const MadeStep made = step_of(DType::f64, kShardRows, kShards, "cross_entropy");
  std::vector<double> wanted = machine.state("mean").to_doubles();
  for (int turn = 0; turn < 2; ++turn) {
    machine.step(made, data, kShards);
    for (std::int64_t shard = 0; shard < kShards; ++shard)
      for (std::int64_t i = 0; i < 5; ++i) {
        double mean = 0;
        for (std::int64_t row = 0; row < kShardRows; ++row)
          mean += data.at("x").at((shard * kShardRows + row) * 5 + i) / kShardRows;
        wanted[static_cast<std::size_t>(i)] = wanted[static_cast<std::size_t>(i)] * 0.5 + mean * 0.5;
      }
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(machine.state("mean").at(i), wanted[static_cast<std::size_t>(i)], 1e-12);
  }
}

/// What is no sum over a count is averaged; what is not linear in its terms, as a whole.
TEST(Accumulate, TellsWhatIsAveraged) {
  const auto averaged = [](const std::string& loss) { return step_of(DType::f64, kShardRows, 2, loss).accumulation->averaged; };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(averaged("cross_entropy + 0.5*dice(logits, label)"), Texts{"dice(logits, label)"});
  EXPECT_EQ(averaged("cross_entropy*mse(logits, 0)"), Texts{"cross_entropy*mse(logits, 0)"});
  EXPECT_EQ(averaged("-(cross_entropy - 2)*3"), Texts{});
}

}  // namespace
}  // namespace gcomp::passes
