// Activations that are computed again: the step that was, in less memory, and no node more than twice.
#include <gtest/gtest.h>

#include <map>

#include "ir/interpret.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "passes/memory/order.h"
#include "passes/memory/plan_memory.h"
#include "passes/memory/recompute.h"
#include "passes/pipeline.h"
#include "tests/passes/training_graphs.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::int64_t arena_of(const Graph& graph) { return plan_memory(graph).lower_bound; }

struct TrainedModel {
  const char* name;
  Graph (*make)(const ModelSize&, const OptimizerSpec&);
  double most_left;  ///< of the arena, where as little as can be is asked for
};

class Recompute : public testing::TestWithParam<TrainedModel> {
 protected:
  static Graph ordered(const ModelSize& size) {
    Graph graph = GetParam().make(size, {"adamw"});
    lower_to_kernels(graph);
    order(graph);
    return graph;
  }
};

TEST_P(Recompute, GivesTheSameBitsInLessMemory) {
  const ModelSize size{DType::f64, 24, 6, 8, 2, 6, 5};
  const Graph graph = ordered(size);
  const std::map<std::string, Tensor> values = random_values(graph, size.classes);
  const InterpretResult wanted = interpret(graph, values);
  const std::int64_t before = arena_of(graph);
  std::int64_t least = before;
  for (const double share : {0.95, 0.8, 0.6, 0.0}) {
    Graph less = clone(graph);
    const auto most = static_cast<std::int64_t>(share * static_cast<double>(before));
    EXPECT_TRUE(recompute(less, {.most_bytes = most})) << share;
    verify(less);
    const MemoryPlan plan = plan_memory(less);
    verify_plan(less, plan);
    // As much as is asked for, or as can be.
    EXPECT_LE(plan.lower_bound,
              std::max<std::int64_t>(most, static_cast<std::int64_t>(GetParam().most_left * static_cast<double>(before))));
    EXPECT_LE(plan.lower_bound, least) << "less was asked for than before";
    least = plan.lower_bound;
    const InterpretResult found = interpret(less, values);
    ASSERT_EQ(found.outputs.size(), wanted.outputs.size());
    for (std::size_t i = 0; i < wanted.outputs.size(); ++i) EXPECT_TRUE(found.outputs[i] == wanted.outputs[i]) << i;
    EXPECT_TRUE(found.states == wanted.states);
  }
  EXPECT_LT(static_cast<double>(least), GetParam().most_left * static_cast<double>(before));
}

TEST_P(Recompute, CopiesNoNodeTwiceAndNoMoreThanItHasTo) {
  const Graph graph = ordered({DType::f32, 128, 8, 16, 4, 6, 10});
  const std::int64_t before = arena_of(graph);
  std::size_t fewer = 0;
  for (const double share : {0.9, 0.75, 0.0}) {
    Graph less = clone(graph);
    recompute(less, {.most_bytes = static_cast<std::int64_t>(share * static_cast<double>(before))});
    std::map<std::string, int> copies;  // by what a node computes of what
    std::size_t count = 0;
    for (const auto& node : less.nodes()) {
      if (!is_recomputed(*node)) continue;
      ++count;
      EXPECT_EQ(node->origin.str().find("(again) (again)"), std::string::npos);
      EXPECT_NE(node->op->kind, Kind::update);
      EXPECT_EQ(++copies[node->result()->name], 1);
      EXPECT_TRUE(node->result()->name.ends_with(".again")) << "a second copy would have a number: " << node->result()->name;
    }
    EXPECT_GT(count, fewer) << share;
    fewer = count;
  }
}

TEST_P(Recompute, IsTheSameEachTimeAndLeavesWhatFits) {
  const Graph graph = ordered({DType::f32, 8, 8, 16, 2, 3, 5});
  Graph once = clone(graph), again = clone(graph), enough = clone(graph);
  recompute(once, {.most_bytes = 0});
  recompute(again, {.most_bytes = 0});
  EXPECT_EQ(print(once), print(again));
  EXPECT_FALSE(recompute(enough, {.most_bytes = arena_of(graph)}));
  EXPECT_TRUE(enough == graph);
}

INSTANTIATE_TEST_SUITE_P(Steps, Recompute,
                         testing::Values(TrainedModel{"mlp", mlp_training, 0.75}, TrainedModel{"cnn", convolution_training, 0.66},
                                         TrainedModel{"transformer", transformer_training, 0.6}),
                         [](const auto& info) { return info.param.name; });

// The bound is on all that a plan holds, states among it.
TEST(RecomputePass, HoldsTheWholePlanBelowTheBound) {
  const auto total = [](std::optional<std::int64_t> most) {
    Graph graph = transformer_training({DType::f32, 64, 16, 32, 4, 6, 50}, {"adamw"});
    const MemoryPlan plan = lower(graph, {.most_memory = most});
    return plan.arena_bytes + plan.state_bytes + plan.constant_bytes + plan.io_bytes;
  };
  const std::int64_t without = total(std::nullopt), least = total(0);
  EXPECT_LT(static_cast<double>(least), 0.6 * static_cast<double>(without));
  EXPECT_EQ(total(without), without);
  const std::int64_t between = (without + least) / 2;
  EXPECT_LE(total(between), between);
  EXPECT_GT(total(between), least);
  try {
    total(least / 2);
    FAIL() << "half of the least is enough";
  } catch (const SizeError& error) {
    EXPECT_NE(std::string(error.what()).find("at the least, of which"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gcomp::passes
