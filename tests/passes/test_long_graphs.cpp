// Passes on long chains and wide sums: no recursion along them, kernels of bounded size, memory that grows with the graph.

#include <gtest/gtest.h>

#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/training/autocast.h"
#include "passes/training/training.h"
#include "tests/passes/small_stack.h"
#include "tests/passes/training_graphs.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr int kLong = 8000;

struct Chain {
  Graph graph{"chain"};
  LayerBuilder layers{Builder(graph), DType::f32};
  Var x;

  Chain() {
    x = layers.builder.input({DType::f32, {8, 16}}, "x");
    x = layers.dense(x, 16);
  }
  /// The whole step, lowered; the number of kernels.
  int lowered(bool train) {
    graph.outputs() = {x.value};
    if (train) finish_training_step(graph, {"sgd"});
    tests::with_small_stack([&] { lower(graph); });
    return count_launches(graph);
  }
};

/// Terms of the longest formula of a graph's kernels.
std::size_t longest_formula(const Graph& graph) {
  std::size_t longest = 0;
  for (const auto& node : graph.nodes()) {
    if (!node->nest) continue;
    std::size_t terms = 0;
    for (const Statement& s : node->nest->statements) for_each_term(s.value, [&](const TermPtr&) { ++terms; });
    longest = std::max(longest, terms);
  }
  return longest;
}

TEST(LongGraphs, AChainOfPointwiseOps) {
  for (bool train : {false, true}) {
    Chain chain;
    for (int i = 0; i < kLong; ++i) chain.x = ops::kSin(chain.x);
    EXPECT_LT(chain.lowered(train), kLong / 8);
    EXPECT_LE(longest_formula(chain.graph), 400U);
  }
}

TEST(LongGraphs, AChainOfRowKernels) {
  Chain chain;
  for (int i = 0; i < kLong / 8; ++i) chain.x = chain.layers.builder.apply(ops::kSoftmax, {chain.x}, {{"axis", 1}});
  EXPECT_LT(chain.lowered(true), kLong);
  EXPECT_LE(longest_formula(chain.graph), 400U);
}

TEST(LongGraphs, AChainOfViews) {
  Chain chain;
  Builder& b = chain.layers.builder;
  for (int i = 0; i < kLong; ++i)
    chain.x = i % 2 ? b.reshape(chain.x, {8, 16}) : b.pad(b.slice_axis(b.transpose_last(chain.x), 0, 1, 15), {1, 0}, {0, 0}, 0);
  EXPECT_GT(chain.lowered(false), 0);
  EXPECT_LE(longest_formula(chain.graph), 400U);
}

TEST(LongGraphs, MixedPrecisionOfAChainOfViewsOfAParameter) {
  Graph graph("views");
  Builder b(graph);
  const Var w = b.wrap(graph.add_state({DType::f32, {16, 16}}, "w", StateRole::parameter));
  Var view = w;
  for (int i = 0; i < 20 * kLong; ++i) view = b.transpose_last(view);
  graph.outputs() = {b.matmul(b.input({DType::f32, {8, 16}}, "x"), view).value};
  tests::with_small_stack([&] { EXPECT_TRUE(autocast(graph, {.low = DType::bf16})); });
  // The parameter is cast, once, before its views.
  EXPECT_EQ(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                          [&](const auto& n) { return n->op == &ops::kCast && n->operands[0] == w.value; }),
            1);
}

TEST(LongGraphs, AnEpilogueWhoseStatementsStandOnTwoOthersEach) {
  // Paths from the last statement to the product double at each: only a walk that knows where it has been ends.
  Chain chain;
  Graph& graph = chain.graph;
  Var before = chain.x;
  for (int i = 0; i < 400; ++i) chain.x = chain.x + std::exchange(before, chain.x);
  graph.outputs() = {chain.x.value};
  tests::with_small_stack([&] { lower(graph, {.target = codegen::target_info({runtime::TargetKind::cuda, "sm_90"})}); });
  EXPECT_GT(count_launches(graph), 0);
}

TEST(LongGraphs, ASumOfManyTerms) {
  Chain chain;
  Var sum;
  for (int i = 0; i < kLong; ++i) {
    Var term = chain.x * (1.0 + i);
    sum = sum ? sum + term : term;
  }
  chain.x = sum;
  EXPECT_GT(chain.lowered(true), 0);
  EXPECT_LE(longest_formula(chain.graph), 400U);
}

}  // namespace
}  // namespace gcomp::passes
