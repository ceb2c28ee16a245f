// The order of nodes: what must stay before what, and what a better order saves.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "passes/memory/order.h"
#include "passes/memory/plan_memory.h"
#include "tests/passes/training_graphs.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::vector<std::string> names_in_order(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes())
    names.push_back(node->results.empty() ? "update " + node->operands[0]->name : node->result()->name);
  return names;
}

struct Ordered {
  Graph graph;
  bool changed = false;
  std::int64_t before = 0, after = 0;  ///< lower bounds of the arena

  explicit Ordered(Graph g) : graph(std::move(g)) {
    before = plan_memory(graph).lower_bound;
    changed = order(graph);
    const MemoryPlan plan = plan_memory(graph);
    verify_plan(graph, plan);
    after = plan.lower_bound;
  }
  explicit Ordered(const std::string& text) : Ordered(parse(text)) {}

  std::size_t at(std::string_view name) const {
    const auto names = names_in_order(graph);
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  }
};

TEST(Order, KeepsAnOrderThatCannotBeImproved) {
  const Ordered o(R"(graph @g(%x: f32[64,64]) -> (%out) {
    %a = transpose %x {permutation=[1,0]} : f32[64,64]
    %b = transpose %a {permutation=[1,0]} : f32[64,64]
    %out = reduce_sum %b {axes=[0,1]} : f32[]
  })");
  EXPECT_FALSE(o.changed);
}

TEST(Order, RunsEachBranchToItsEndBeforeTheNext) {
  // As given all three transposes of 16 KiB are live at once; one after another only one is, beside scalars.
  const Ordered o(R"(graph @g(%x: f32[64,64]) -> (%out) {
    %a = transpose %x {permutation=[1,0]} : f32[64,64]
    %b = transpose %x {permutation=[1,0]} : f32[64,64]
    %c = transpose %x {permutation=[1,0]} : f32[64,64]
    %sa = reduce_sum %a {axes=[0,1]} : f32[]
    %sb = reduce_sum %b {axes=[0,1]} : f32[]
    %sc = reduce_sum %c {axes=[0,1]} : f32[]
    %s = add %sa, %sb : f32[]
    %out = add %s, %sc : f32[]
  })");
  EXPECT_TRUE(o.changed);
  EXPECT_EQ(o.before, 3 * 16384 + 64);  // at %sa: three transposes and the sum
  EXPECT_EQ(o.after, 16384 + 2 * 64);   // at the second sum: a transpose, two sums
  EXPECT_EQ(names_in_order(o.graph), (std::vector<std::string>{"a", "sa", "b", "sb", "s", "c", "sc", "out"}));
}

TEST(Order, AppliesUpdatesAsSoonAsTheirGradientIsThere) {
  // Each gradient is 16 KiB; as given both wait for the updates at the end.
  const Ordered o(R"(graph @g(%x: f32[64,64], %y: f32[64,64]) -> () {
    state %w: f32[64,64] parameter
    state %v: f32[64,64] parameter
    %gw = matmul %x, %y : f32[64,64]
    %gv = matmul %y, %x : f32[64,64]
    %w1 = sub %w, %gw : f32[64,64]
    %v1 = sub %v, %gv : f32[64,64]
    update %w, %w1
    update %v, %v1
  })");
  EXPECT_EQ(o.before, 2 * 16384);
  EXPECT_EQ(o.after, 16384);
  EXPECT_LT(o.at("w1"), o.at("gv"));
}

TEST(Order, ReadersOfAStateComeBeforeItsNewValueIsComputed) {
  // As given %w1 cannot lie in %w, which %y reads later.
  Ordered o(R"(graph @g(%x: f32[64,64], %g: f32[64,64]) -> (%y) {
    state %w: f32[64,64] parameter
    %w1 = sub %w, %g : f32[64,64]
    %y = matmul %x, %w : f32[64,64]
    update %w, %w1
  })");
  EXPECT_TRUE(o.changed);
  EXPECT_EQ(names_in_order(o.graph), (std::vector<std::string>{"y", "w1", "update w"}));
  EXPECT_EQ(o.before, 16384);
  EXPECT_EQ(o.after, 0);
}

TEST(Order, AReaderThatNeedsTheNewValueStaysBehindIt) {
  const Ordered o(R"(graph @g(%x: f32[64,64], %g: f32[64,64]) -> (%y) {
    state %w: f32[64,64] parameter
    %w1 = sub %w, %g : f32[64,64]
    %y = matmul %w1, %w : f32[64,64]
    update %w, %w1
  })");
  EXPECT_FALSE(o.changed);
}

TEST(Order, StatesThatExchangeTheirValuesThroughViewsAreNoCycle) {
  Graph graph = parse(R"(graph @g() -> () {
    state %v: f32[4] parameter
    state %w: f32[4] parameter
    %old_v = reshape %v {shape=[4]} : f32[4]
    %old_w = reshape %w {shape=[4]} : f32[4]
    update %v, %old_w
    update %w, %old_v
  })");
  order(graph);
  verify_plan(graph, plan_memory(graph));
}

TEST(Order, IsTheSameEachTimeAndFast) {
  const ModelSize sizes[] = {
      {DType::f32, 128, 32, 256, 8, 3, 10}, {DType::f32, 16, 64, 384, 6, 6, 1000}, {DType::f32, 4, 128, 768, 12, 12, 50257}};
  for (const ModelSize& size : sizes)
    for (auto make : {mlp_training, convolution_training, transformer_training})
      for (bool kernels : {false, true}) {
        Graph graph = make(size, {"adamw"});
        kernels ? lower_to_kernels(graph) : lower_to_primitives(graph);
        Graph again = clone(graph);
        const auto start = std::chrono::steady_clock::now();
        const std::int64_t before = plan_memory(graph).lower_bound;
        const auto planned = std::chrono::steady_clock::now();
        order(graph);
        const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - planned,
                                                        plan_time = planned - start;
        const std::int64_t after = plan_memory(graph).lower_bound;
        std::printf("%-12s %2lld blocks, %s: %5zu nodes, peak %8.2f -> %8.2f MiB, ordered in %.1f ms, planned in %.1f ms\n",
                    graph.inputs()[0]->name.c_str(), static_cast<long long>(size.blocks), kernels ? "fused  " : "unfused",
                    graph.nodes().size(), static_cast<double>(before) / (1 << 20), static_cast<double>(after) / (1 << 20),
                    time.count(), plan_time.count());
        EXPECT_LE(after, before);
        order(again);
        EXPECT_EQ(names_in_order(graph), names_in_order(again));
      }
}

}  // namespace
}  // namespace gcomp::passes
