// Layouts small enough to derive by hand, and training steps run in the memory they are given.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <unordered_set>

#include "ir/ops/table.h"
#include "passes/memory/order.h"
#include "tests/passes/planned_execution.h"
#include "tests/passes/planned_graph.h"
#include "tests/passes/training_graphs.h"

namespace gcomp::passes {
namespace {

using namespace ir;

TEST(PlanMemory, StatesInputsAndOutputsArePackedInDeclarationOrder) {
  // f32[3] is 12 bytes, rounded up to 64; f32[20] is 80, rounded up to 128.
  const Planned p(R"(graph @g(%x: f32[20], %y: f32[3]) -> (%out) {
    state %a: f32[3] parameter
    state %b: f32[20] parameter
    state %c: i64[] counter = 0
    %out = add %x, %b : f32[20]
  })");
  EXPECT_EQ(p.at("a").space, MemorySpace::state);
  EXPECT_EQ(p.at("a").offset, 0);
  EXPECT_EQ(p.at("b").offset, 64);
  EXPECT_EQ(p.at("c").offset, 64 + 128);
  EXPECT_EQ(p.plan.state_bytes, 64 + 128 + 64);
  EXPECT_EQ(p.at("x").space, MemorySpace::io);
  EXPECT_EQ(p.at("x").offset, 0);
  EXPECT_EQ(p.at("y").offset, 128);
  EXPECT_EQ(p.at("out").space, MemorySpace::io);  // an output, so neither in the arena nor over %x
  EXPECT_EQ(p.at("out").offset, 128 + 64);
  EXPECT_EQ(p.plan.io_bytes, 128 + 64 + 128);
  EXPECT_EQ(p.plan.arena_bytes, 0);
}

TEST(PlanMemory, AlignmentIsAnOption) {
  const Planned p("graph @g(%x: f32[3], %y: f32[3]) -> (%out) { %out = add %x, %y : f32[3] }", {.alignment = 256});
  EXPECT_EQ(p.at("y").offset, 256);
  EXPECT_EQ(p.at("out").offset, 512);
}

TEST(PlanMemory, ConstantsHaveTheirOwnSpaceAndFullsDoNot) {
  const Planned p(R"(graph @g() -> (%out) {
    %c = constant {value=f32[2] [1.0, 2.0]} : f32[2]
    %f = full {dtype=f32, shape=[2], value=3.0} : f32[2]
    %d = constant {value=f32[2] [5.0, 6.0]} : f32[2]
    %s = add %c, %f : f32[2]
    %out = add %s, %d : f32[2]
  })");
  EXPECT_EQ(p.at("c").space, MemorySpace::constant);
  EXPECT_EQ(p.at("d").space, MemorySpace::constant);
  EXPECT_EQ(p.at("d").offset, 64);
  EXPECT_EQ(p.plan.constant_bytes, 128);
  EXPECT_EQ(p.at("f").space, MemorySpace::arena);
  EXPECT_EQ(p.alias("s"), "f");  // %f ends at %s, %c is not to be overwritten
  EXPECT_EQ(p.plan.arena_bytes, 64);
}

TEST(PlanMemory, MemoryIsUsedAgainAfterTheLastReader) {
  // Transposes never work in place. Live: %a 1..2, %b 2..3, %c 3..4, each 256 bytes, so two at a time.
  const Planned p(R"(graph @g(%x: f32[8,8]) -> (%out) {
    %a = transpose %x {permutation=[1,0]} : f32[8,8]
    %b = transpose %a {permutation=[1,0]} : f32[8,8]
    %c = transpose %b {permutation=[1,0]} : f32[8,8]
    %out = transpose %c {permutation=[1,0]} : f32[8,8]
  })");
  EXPECT_EQ(p.plan.lower_bound, 512);
  EXPECT_EQ(p.plan.arena_bytes, 512);
  EXPECT_EQ(p.at("a").offset, p.at("c").offset);
  EXPECT_NE(p.at("a").offset, p.at("b").offset);
}

TEST(PlanMemory, ReshapesShareAndExtendTheLifeOfTheirOperand) {
  // %a is read through %r at %t, so %b cannot take its place: 256 + 256.
  const Planned p(R"(graph @g(%x: f32[8,8]) -> (%out) {
    %a = transpose %x {permutation=[1,0]} : f32[8,8]
    %r = reshape %a {shape=[64]} : f32[64]
    %q = reshape %r {shape=[4,16]} : f32[4,16]
    %b = transpose %x {permutation=[1,0]} : f32[8,8]
    %t = reduce_sum %q {axes=[0,1]} : f32[]
    %u = reduce_sum %b {axes=[0,1]} : f32[]
    %out = add %t, %u : f32[]
  })");
  EXPECT_EQ(p.alias("r"), "a");
  EXPECT_EQ(p.alias("q"), "r");
  EXPECT_EQ(p.at("q").offset, p.at("a").offset);
  EXPECT_NE(p.at("b").offset, p.at("a").offset);
  EXPECT_EQ(p.plan.arena_bytes, 256 + 256 + 64);  // %a, %b and the scalar %t, live together at %t
}

TEST(PlanMemory, AChainOfMapsStaysInOnePlace) {
  const Planned p(R"(graph @g(%x: f32[8,8], %y: f32[8,8]) -> (%out) {
    %a = mul %x, %y : f32[8,8]
    %b = exp %a : f32[8,8]
    %c = add %b, %y : f32[8,8]
    %d = mul %c, %b : f32[8,8]
    %out = add %d, %x : f32[8,8]
  })");
  EXPECT_EQ(p.alias("b"), "a");
  EXPECT_EQ(p.alias("c"), "");   // %b is read again at %d
  EXPECT_EQ(p.alias("d"), "c");  // of two that end at %d the one made last
  EXPECT_EQ(p.plan.arena_bytes, 512);
}

TEST(PlanMemory, AResultOfAnotherElementSizeIsNotInPlace) {
  const Planned p(R"(graph @g(%x: f32[8,8]) -> (%out) {
    %a = exp %x : f32[8,8]
    %b = cast %a {to=f64} : f64[8,8]
    %c = cast %b {to=i64} : i64[8,8]
    %out = cast %c {to=f32} : f32[8,8]
  })");
  EXPECT_EQ(p.alias("b"), "");
  EXPECT_EQ(p.alias("c"), "b");  // i64 over f64: eight bytes each
}

TEST(PlanMemory, ValuesWithoutBytesTakeNoSpace) {
  const Planned p(R"(graph @g(%x: f32[0,8]) -> (%out) {
    %a = exp %x : f32[0,8]
    %b = exp %a : f32[0,8]
    %out = reduce_sum %b {axes=[0]} : f32[8]
  })");
  EXPECT_EQ(p.plan.arena_bytes, 0);
  EXPECT_EQ(p.plan.io_bytes, 64);
}

TEST(PlanMemory, AnUpdateIsComputedInItsState) {
  const Planned p(R"(graph @g(%g: f32[8,8]) -> (%y) {
    state %w: f32[8,8] parameter
    %y = reduce_sum %w {axes=[0,1]} : f32[]
    %s = mul %g, %g : f32[8,8]
    %n = sub %w, %s : f32[8,8]
    update %w, %n
  })");
  EXPECT_EQ(p.alias("n"), "w");
  EXPECT_EQ(p.at("n").space, MemorySpace::state);
  EXPECT_EQ(p.plan.arena_bytes, 256);  // %s alone
}

TEST(PlanMemory, AnUpdateIsCopiedWhereTheStateIsReadLater) {
  const Planned p(R"(graph @g(%g: f32[8,8]) -> (%y) {
    state %w: f32[8,8] parameter
    %n = sub %w, %g : f32[8,8]
    %y = reduce_sum %w {axes=[0,1]} : f32[]
    update %w, %n
  })");
  EXPECT_EQ(p.alias("n"), "");
  EXPECT_EQ(p.at("n").space, MemorySpace::arena);
}

TEST(PlanMemory, ATransposedReadOfTheStateForbidsToWriteOverIt) {
  const Planned p(R"(graph @g() -> () {
    state %w: f32[8,8] parameter
    %n = transpose %w {permutation=[1,0]} : f32[8,8]
    update %w, %n
  })");
  EXPECT_EQ(p.alias("n"), "");
}

TEST(PlanMemory, AViewOfAStateThatIsReadAfterTheUpdateIsACopy) {
  const Planned p(R"(graph @g(%g: f32[8,8]) -> (%y) {
    state %w: f32[8,8] parameter
    %old = reshape %w {shape=[64]} : f32[64]
    %n = add %g, %g : f32[8,8]
    update %w, %n
    %y = reduce_sum %old {axes=[0]} : f32[]
  })");
  EXPECT_EQ(p.alias("old"), "");
  EXPECT_EQ(p.at("old").space, MemorySpace::arena);
  EXPECT_EQ(p.alias("n"), "w");
}

TEST(PlanMemory, OneValueForTwoStatesIsComputedInTheFirst) {
  const Planned p(R"(graph @g(%g: f32[4]) -> () {
    state %a: f32[4] parameter
    state %b: f32[4] parameter
    %n = exp %g : f32[4]
    update %a, %n
    update %b, %n
  })");
  EXPECT_EQ(p.alias("n"), "a");
}

TEST(PlanMemory, OutputsThatAreAliasesOfInputsOrStatesStayThere) {
  const Planned p(R"(graph @g(%x: f32[4]) -> (%r, %w, %r) {
    state %w: f32[2] parameter
    %r = reshape %x {shape=[2,2]} : f32[2,2]
  })");
  EXPECT_EQ(p.at("r").space, MemorySpace::io);
  EXPECT_EQ(p.at("r").offset, p.at("x").offset);
  EXPECT_EQ(p.at("w").space, MemorySpace::state);
  EXPECT_EQ(p.plan.io_bytes, 64);
}

TEST(PlanMemory, AnOptimizerKernelWritesOverItsStates) {
  const Planned p(R"(graph @g(%g1: f32[8], %g2: f32[4,4], %rate: f32[]) -> (%y) {
    state %w1: f32[8] parameter
    state %m1: f32[8] optimizer = 0
    state %w2: f32[4,4] parameter
    state %m2: f32[4,4] optimizer = 0
    %a1 = mul %g1, %g1 : f32[8]
    %a2 = mul %g2, %g2 : f32[4,4]
    %y = reduce_sum %w1 {axes=[0]} : f32[]
    %n1, %v1, %n2, %v2 = multi_kernel %w1, %m1, %a1, %rate, %w2, %m2, %a2, %rate {segments=2} : f32[8], f32[8], f32[4,4], f32[4,4] {
      axes i:8
      t0[i]: f32 = (operand1[i] + operand2[i])
      t1[i]: f32 = (operand0[i] - (t0 * operand3))
      result0[i] = t1
      result1[i] = t0
    }
    update %w1, %n1
    update %m1, %v1
    update %w2, %n2
    update %m2, %v2
  })");
  EXPECT_EQ(p.alias("n1"), "w1");
  EXPECT_EQ(p.alias("v1"), "m1");
  EXPECT_EQ(p.alias("n2"), "w2");
  EXPECT_EQ(p.alias("v2"), "m2");
  EXPECT_EQ(p.plan.arena_bytes, 128);  // %a1 and %a2
}

// Training steps.

double ratio_of(const MemoryPlan& plan) {
  return plan.lower_bound ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1;
}

struct PlannedModel {
  const char* name;
  Graph (*make)(const ModelSize&, const OptimizerSpec&);
  const char* optimizer;
};
constexpr PlannedModel kCases[] = {{"mlp", mlp_training, "adamw"},
                                   {"mlp", mlp_training, "sgd"},
                                   {"convolution", convolution_training, "sgd"},
                                   {"convolution", convolution_training, "adam"},
                                   {"transformer", transformer_training, "adamw"}};

/// Runs `graph` in its planned memory and on the interpreter; both must agree to the bit.
void expect_same_in_planned_memory(const Graph& graph, std::int64_t classes) {
  const MemoryPlan plan = plan_memory(graph);
  verify_plan(graph, plan);
  const auto values = random_values(graph, classes);
  const InterpretResult expected = interpret(graph, values), found = PlannedExecution(graph, plan).run(values);
  EXPECT_TRUE(found.outputs == expected.outputs);
  EXPECT_EQ(found.states.size(), expected.states.size());
  for (const auto& [name, value] : expected.states) EXPECT_TRUE(found.states.at(name) == value) << name;
}

TEST(PlanMemory, TrainingStepsRunInTheirPlannedMemory) {
  for (const PlannedModel& c : kCases) {
    SCOPED_TRACE(c.name);
    const ModelSize size;
    for (bool kernels : {false, true}) {
      Graph graph = c.make(size, {c.optimizer});
      kernels ? lower_to_kernels(graph) : lower_to_primitives(graph);
      const auto values = random_values(graph, size.classes);
      const InterpretResult before = interpret(graph, values);
      expect_same_in_planned_memory(graph, size.classes);
      order(graph);
      expect_same_in_planned_memory(graph, size.classes);
      const InterpretResult after = interpret(graph, values);
      EXPECT_TRUE(before.outputs == after.outputs && before.states == after.states) << "order changed what the graph computes";
    }
  }
}

std::int64_t copied_updates(const Graph& graph, const MemoryPlan& plan) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    return node->op->kind == Kind::update && plan.placements.at(node->operands[1]).space != MemorySpace::state;
  });
}

TEST(PlanMemory, ArenasOfRealSizesAreCloseToTheLowerBound) {
  const ModelSize sizes[] = {
      {DType::f32, 128, 32, 256, 8, 3, 10}, {DType::f32, 16, 64, 384, 6, 6, 1000}, {DType::f32, 4, 128, 768, 12, 12, 50257}};
  for (const PlannedModel& c : kCases)
    for (const ModelSize& size : sizes)
      for (bool kernels : {false, true}) {
        if (c.make == convolution_training && size.blocks == 12) continue;
        Graph graph = c.make(size, {c.optimizer});
        kernels ? lower_to_kernels(graph) : lower_to_primitives(graph);
        order(graph);
        const auto start = std::chrono::steady_clock::now();
        const MemoryPlan plan = plan_memory(graph);
        const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
        verify_plan(graph, plan);
        std::printf("%-12s %2lld blocks, %s: %5zu nodes, arena %8.2f MiB, arena / lower bound %.4f, planned in %.1f ms\n", c.name,
                    static_cast<long long>(size.blocks), kernels ? "fused  " : "unfused", graph.nodes().size(),
                    static_cast<double>(plan.arena_bytes) / (1 << 20), ratio_of(plan), time.count());
        EXPECT_LE(ratio_of(plan), 1.05);
        EXPECT_TRUE(!kernels || copied_updates(graph, plan) == 0);
      }
}

/// Random graphs of maps, transposes, reductions, reshapes and updates over few shapes.
Graph random_graph(unsigned seed) {
  std::mt19937 random(seed);
  Graph graph("random");
  Builder b(graph);
  std::vector<Var> values = {b.input({DType::f64, {4, 4}}, "x"), b.input({DType::f64, {8, 2}}, "y")};
  std::vector<Var> states;
  for (int i = 0; i < 3; ++i)
    states.push_back(b.wrap(graph.add_state({DType::f64, {4, 4}}, "w" + std::to_string(i), StateRole::parameter)));
  values.insert(values.end(), states.begin(), states.end());
  auto pick = [&] { return values[random() % values.size()]; };
  auto square = [&] { return b.reshape(pick(), {4, 4}); };
  const unsigned count = 10 + random() % 40;
  for (unsigned i = 0; i < count; ++i) {
    switch (random() % 6) {
      case 0: values.push_back(b.transpose_last(square())); break;
      case 1: values.push_back(square() + square()); break;
      case 2: values.push_back(b.reshape(pick(), {8, 2})); break;
      case 3: values.push_back(ops::kMaximum(square(), square())); break;
      case 4: values.push_back(b.unreduce(b.sum(square(), {0}), {4, 4}, {0})); break;
      case 5: values.push_back(b.matmul(square(), square()) * 0.125); break;
    }
  }
  graph.outputs() = {square().value, pick().value};
  for (const Var& state : states)
    if (random() % 4) b.update(state.value, square());
  return graph;
}

/// Drops graphs that break the law on reads of a state after its update.
bool keeps_state_law(const Graph& graph) {
  std::unordered_set<const Value*> updated;
  for (const auto& node : graph.nodes()) {
    for (std::size_t i = 0; i < node->operands.size(); ++i)
      if (updated.count(node->operands[i])) return false;
    if (node->op->kind == Kind::update) updated.insert(node->operands[0]);
  }
  return std::none_of(graph.outputs().begin(), graph.outputs().end(), [&](const Value* v) { return updated.count(v) > 0; });
}

TEST(PlanMemory, RandomGraphsRunInTheirPlannedMemory) {
  int tried = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Graph graph = random_graph(seed);
    if (!keeps_state_law(graph)) continue;
    ++tried;
    expect_same_in_planned_memory(graph, 4);
    const auto values = random_values(graph, 4);
    const InterpretResult before = interpret(graph, values);
    order(graph);
    ASSERT_TRUE(keeps_state_law(graph));
    expect_same_in_planned_memory(graph, 4);
    const InterpretResult after = interpret(graph, values);
    EXPECT_TRUE(before.outputs == after.outputs && before.states == after.states);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(tried, 200);
}

}  // namespace
}  // namespace gcomp::passes
