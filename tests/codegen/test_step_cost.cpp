// What steps cost, counted by hand: products by their extents, kernels by the elements that they read and write.
#include <gtest/gtest.h>

#include "codegen/describe_steps.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::ir;

codegen::CountedProgram counted(Graph& graph, bool epilogues = false) {
  passes::PipelineOptions options;
  options.target = codegen::target_info({runtime::TargetKind::cuda, "sm_90"});
  if (!epilogues) options.target.computes_epilogue = {};
  const MemoryPlan plan = passes::lower(graph, options);
  codegen::CountedProgram made = codegen::generate_counted(graph, plan, {runtime::TargetKind::cuda, "sm_90"});
  EXPECT_EQ(made.costs.size(), made.program.steps.size());
  return made;
}

TEST(StepCost, AMatmulAndWhatFollowsIt) {
  Graph graph("g");
  Builder b(graph);
  Var x = b.input({DType::f32, {40, 30}}, "x"), w = b.input({DType::f32, {30, 20}}, "w");
  graph.outputs() = {ops::kRelu(b.matmul(x, w) * 2.0).value};
  const codegen::CountedProgram made = counted(graph);
  ASSERT_EQ(made.costs.size(), 2u);
  EXPECT_EQ(made.costs[0].flops, 2 * 40 * 30 * 20);
  EXPECT_EQ(made.costs[0].bytes, 4 * (40 * 30 + 30 * 20 + 40 * 20));
  EXPECT_EQ(made.costs[1].flops, 2 * 40 * 20);  // a product and a maximum for each element
  EXPECT_EQ(made.costs[1].bytes, 4 * 2 * 40 * 20);
  EXPECT_EQ(made.costs[0].seconds(codegen::kH200), made.costs[0].bytes / codegen::kH200.copy_bytes);
}

// What the library knows goes through memory once; else the sums are written and read again.
TEST(StepCost, AnEpilogue) {
  constexpr double kSums = 4 * 40 * 20, kOperands = 4 * (40 * 30 + 30 * 20);
  for (const bool known : {true, false}) {
    Graph graph("g");
    Builder b(graph);
    Var x = b.input({DType::f32, {40, 30}}, "x"), w = b.input({DType::f32, {30, 20}}, "w"), v = b.input({DType::f32, {20}}, "v");
    const Var sum = b.matmul(x, w);
    const Var z = sum + b.broadcast(v, sum.shape());
    graph.outputs() = {known ? z.value : ops::kRelu(z).value};
    const codegen::CountedProgram made = counted(graph, true);
    ASSERT_EQ(made.costs.size(), 1u);
    EXPECT_EQ(made.costs[0].flops, 2 * 40 * 30 * 20 + (known ? 1 : 2) * 40 * 20);
    EXPECT_EQ(made.costs[0].bytes, kOperands + 4 * 20 + (known ? 1 : 3) * kSums);
    const std::string text = codegen::describe_steps(made.program, made.costs, codegen::kH200);
    EXPECT_NE(text.find(known ? "matmul 40x20x30 f32 with bias, else k" : "matmul 40x20x30 f32 with k"), std::string::npos) << text;
    EXPECT_NE(
        text.find(known ? "launches              1: kernels 0, products 1" : "launches              2: kernels 1, products 1"),
        std::string::npos)
        << text;
  }
}

// Where the sums are a result themselves, they are written as that, and read again.
TEST(StepCost, AnEpilogueOfSumsThatAreKept) {
  constexpr double kSums = 4 * 40 * 20, kOperands = 4 * (40 * 30 + 30 * 20);
  Graph graph("g");
  Builder b(graph);
  const Var sum = b.matmul(b.input({DType::f32, {40, 30}}, "x"), b.input({DType::f32, {30, 20}}, "w"));
  graph.outputs() = {ops::kRelu(sum).value, sum.value};
  const codegen::CountedProgram made = counted(graph, true);
  ASSERT_EQ(made.costs.size(), 1u);
  EXPECT_EQ(made.costs[0].bytes, kOperands + 3 * kSums);
}

// The rows are read once for both gradients.
TEST(StepCost, ABiasGradient) {
  Graph graph("g");
  Builder b(graph);
  Var x = b.input({DType::f32, {40, 30}}, "x"), dy = b.input({DType::f32, {40, 20}}, "dy");
  graph.outputs() = {b.matmul(x, dy, true).value, b.sum(dy, {0}).value};
  const codegen::CountedProgram made = counted(graph, true);
  ASSERT_EQ(made.costs.size(), 1u);
  EXPECT_EQ(made.costs[0].flops, 2 * 40 * 30 * 20 + 40 * 20);
  EXPECT_EQ(made.costs[0].bytes, 4 * (40 * 30 + 40 * 20 + 30 * 20 + 20));
  const std::string text = codegen::describe_steps(made.program, made.costs, codegen::kH200);
  for (const char* part : {"matmul 30x20x40 f32 with bias gradient, else k", "launches              1: kernels 0, products 1"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(StepCost, AGatherReadsOnlyItsRows) {
  Graph graph("g");
  Builder b(graph);
  graph.outputs() = {b.gather(b.input({DType::f32, {1000, 8}}, "table"), b.input({DType::i64, {4}}, "ids"), 0).value};
  const codegen::CountedProgram made = counted(graph);
  ASSERT_EQ(made.costs.size(), 1u);
  EXPECT_EQ(made.costs[0].bytes, 4 * 8 * 4 + 8 * 4 + 4 * 8 * 4);  // rows, indices, result
}

TEST(StepCost, ABatchWithOneMatrixReadsItOnce) {
  runtime::MatmulCall call{.dtype = DType::bf16, .batch = {8}, .m = 16, .n = 32, .k = 64, .a = {}, .b = {}, .c = {}, .origin = ""};
  call.a.batch_strides = {1024};
  call.b.batch_strides = {0};
  call.c.batch_strides = {512};
  Graph unused("g");
  Builder b(unused);
  Var x = b.apply(ops::kRelu, {b.input({DType::f32, {1}}, "x")});
  const codegen::StepCost cost = codegen::cost_of(call, *x.value->producer);
  EXPECT_EQ(cost.flops, 2.0 * 8 * 16 * 32 * 64);
  EXPECT_EQ(cost.bytes, 2.0 * (8 * 16 * 64 + 64 * 32 + 8 * 16 * 32));
}

TEST(StepCost, AGroupedConvolution) {
  using Integers = std::vector<std::int64_t>;
  Graph graph("g");
  Builder b(graph);
  Var x = b.input({DType::f32, {2, 6, 8, 8}}, "x"), w = b.input({DType::f32, {4, 3, 3, 3}}, "w");
  graph.outputs() = {b.apply(ops::kConvolution, {x, w},
                             {{"strides", Integers{1, 1}},
                              {"low", Integers{0, 0}},
                              {"high", Integers{0, 0}},
                              {"dilations", Integers{1, 1}},
                              {"groups", std::int64_t{2}}})
                         .value};
  const codegen::CountedProgram made = counted(graph);
  double products = 0;
  for (std::size_t i = 0; i < made.costs.size(); ++i)
    if (std::holds_alternative<runtime::ConvolutionCall>(made.program.steps[i])) products += made.costs[i].flops;
  EXPECT_EQ(products, 2.0 * 2 * 6 * 6 * 4 * 3 * 9);
}

TEST(StepCost, ThePlanNamesEveryStepAndTheSums) {
  Graph graph("step");
  Builder b(graph);
  Var x = b.input({DType::f16, {4096, 4096}}, "x"), w = b.input({DType::f16, {4096, 4096}}, "w");
  graph.outputs() = {ops::kRelu(b.matmul(x, w)).value};
  const codegen::CountedProgram made = counted(graph);
  const std::string text = codegen::describe_steps(made.program, made.costs, codegen::kH200);
  for (const char* part : {"steps of @step for cuda:sm_90", "launches              2: kernels 1, products 1 (2 in all",
                           "matmul 4096x4096x4096 f16", "flops                 137.46 GFLOP", "bytes moved           160.00 MiB",
                           "time on H200          189.58 us at the least: products 173.97 us, kernels 15.61 us",
                           "registers             not known, taken as 48 a thread", "flops", "pointwise", "products"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

}  // namespace
}  // namespace gcomp::tests
