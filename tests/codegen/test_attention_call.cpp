// Attention as a call that a library may take in place of the kernels that stand within it.
#include <gtest/gtest.h>

#include "codegen/device_rates.h"
#include "codegen/estimate.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "runtime/program.h"
#include "runtime/validate.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::ir;
using runtime::AttentionCall;
using runtime::AttentionKind;

struct AttentionNodes {
  DType dtype = DType::bf16;
  Shape batch = {2, 3};
  std::int64_t queries = 8, keys = 8, width = 16;
  bool causal = true, masked = false, shows_delta = false;
};

/// Attention and its gradient, as differentiation leaves them, as a program for sm_90.
codegen::CountedProgram program_of(const AttentionNodes& n) {
  Graph graph("g");
  Builder b(graph);
  const auto matrix = [&](std::string name, std::int64_t rows) {
    Shape shape = n.batch;
    shape.insert(shape.end(), {rows, n.width});
    return b.input({n.dtype, shape}, std::move(name));
  };
  const Var q = matrix("q", n.queries), k = matrix("k", n.keys), v = matrix("v", n.keys), dy = matrix("dy", n.queries);
  Attributes attributes;
  attributes.set("scale", 0.25);
  attributes.set("causal", n.causal);
  std::vector<Var> operands{q, k, v};
  const Var mask = n.masked ? b.input({DType::boolean, {1, 1, 1, n.keys}}, "mask") : Var();
  if (n.masked) operands.push_back(mask);
  const std::vector<Var> forward = b.apply_many(ops::kAttention, operands, attributes);
  const DType wide = compute_type(n.dtype);
  const Var product = b.cast(dy, wide) * b.cast(forward[0], wide), delta = b.sum(product, {product.rank() - 1});
  operands = {q, k, v, dy, forward[0], forward[1], forward[2], delta};
  if (n.masked) operands.push_back(mask);
  for (const Var& gradient : b.apply_many(ops::kAttentionGradient, operands, attributes)) graph.outputs().push_back(gradient.value);
  graph.outputs().push_back(forward[0].value);
  if (n.shows_delta) graph.outputs().push_back(delta.value);
  const runtime::Target target{runtime::TargetKind::cuda, "sm_90"};
  passes::PipelineOptions options;
  options.target = codegen::target_info(target);
  const MemoryPlan plan = passes::lower(graph, options);
  return codegen::generate_counted(graph, plan, target);
}

std::vector<const AttentionCall*> calls_of(const runtime::Program& program) {
  std::vector<const AttentionCall*> calls;
  for (const runtime::Step& step : program.steps)
    if (const auto* call = std::get_if<AttentionCall>(&step)) calls.push_back(call);
  return calls;
}

TEST(AttentionCalls, HoldTheKernelsThatALibraryReplaces) {
  const codegen::CountedProgram made = program_of({.queries = 257, .keys = 257});
  ASSERT_EQ(made.program.steps.size(), 2u) << "the sum over dy * y is among the gradient's kernels";
  const auto calls = calls_of(made.program);
  ASSERT_EQ(calls.size(), 2u);
  const AttentionCall &forward = *calls[0], &gradient = *calls[1];
  EXPECT_EQ(forward.kind, AttentionKind::forward);
  EXPECT_EQ(forward.generated.size(), 1u);
  EXPECT_EQ(gradient.kind, AttentionKind::gradient);
  EXPECT_EQ(gradient.generated.size(), 3u);
  EXPECT_EQ(gradient.top, forward.top);
  EXPECT_EQ(gradient.sum, forward.sum);
  EXPECT_EQ(gradient.y.buffer, forward.y.buffer);
  EXPECT_EQ(gradient.batch, std::vector<std::int64_t>{6}) << "neighbours in memory are one dimension";
  EXPECT_EQ(gradient.dk.batch_strides, std::vector<std::int64_t>{257 * 16});
  EXPECT_EQ(gradient.dk.row_stride, 16);
  EXPECT_EQ(gradient.scale, 0.25);
  EXPECT_TRUE(gradient.causal);
  runtime::validate(made.program);
}

TEST(AttentionCalls, AreForSixteenBitsWithoutAMaskAlone) {
  EXPECT_EQ(calls_of(program_of({.dtype = DType::f16}).program).size(), 2u);
  EXPECT_TRUE(calls_of(program_of({.dtype = DType::f32}).program).empty());
  EXPECT_TRUE(calls_of(program_of({.masked = true}).program).empty());
}

// Somebody else reads it: its kernel runs where it stood.
TEST(AttentionCalls, ASumThatIsReadElsewhereStays) {
  const codegen::CountedProgram made = program_of({.shows_delta = true});
  ASSERT_EQ(calls_of(made.program).size(), 2u);
  EXPECT_EQ(calls_of(made.program)[1]->generated.size(), 1u);
  EXPECT_GE(made.program.steps.size(), 3u);
}

// One launch for dq, dk and dv, which sums dy * y too.
TEST(AttentionCalls, HaveOneKernelForTheGradientsOfFewKeys) {
  const auto launches = [](const AttentionNodes& n) { return calls_of(program_of(n).program)[1]->generated.size(); };
  EXPECT_EQ(launches({.queries = 1000, .keys = 256, .width = 64}), 1u);
  EXPECT_EQ(launches({.keys = 257}), 3u);
  EXPECT_EQ(launches({.width = 65}), 3u);
}

// What a library was measured to take longer for is ours where it is there too, decided by shape alone.
TEST(AttentionCalls, SayWhereTheyAreFasterThanALibrary) {
  const auto faster = [](const AttentionNodes& n) {
    const codegen::CountedProgram made = program_of(n);
    EXPECT_FALSE(calls_of(made.program)[0]->generated_is_faster) << "a forward pass";
    return calls_of(made.program)[1]->generated_is_faster;
  };
  EXPECT_TRUE(faster({.batch = {128, 12}, .queries = 197, .keys = 197, .width = 64, .causal = false}));
  EXPECT_TRUE(faster({.batch = {11, 12}, .queries = 9, .keys = 256, .width = 32, .causal = false}));
  EXPECT_TRUE(faster({.batch = {11, 12}, .queries = 96, .keys = 96, .width = 64, .causal = false}));
  EXPECT_FALSE(faster({.batch = {128, 12}, .queries = 128, .keys = 128, .width = 64, .causal = false})) << "a library's whole tile";
  EXPECT_FALSE(faster({.batch = {128, 12}, .queries = 256, .keys = 256, .width = 64, .causal = false}));
  EXPECT_FALSE(faster({.batch = {11, 12}, .queries = 96, .keys = 96, .width = 16, .causal = false}));
  EXPECT_FALSE(faster({.batch = {131}, .queries = 197, .keys = 197, .width = 64, .causal = false}));
  EXPECT_FALSE(faster({.batch = {11, 12}, .queries = 197, .keys = 197, .width = 64, .causal = true}));
  EXPECT_FALSE(faster({.batch = {11, 12}, .queries = 197, .keys = 257, .width = 64, .causal = false}));
  EXPECT_FALSE(faster({.batch = {11, 12}, .width = 72, .causal = false}));
}

// Each of the launches takes what it would as a step of its own, and the library's rows are made ready by a memset.
TEST(AttentionCalls, ThatAreFasterAreEstimatedAsTheyRun) {
  const codegen::CountedProgram made = program_of({.batch = {128, 12}, .queries = 197, .keys = 197, .width = 64, .causal = false});
  const AttentionCall& call = *calls_of(made.program)[1];
  const codegen::StepCost& cost = made.costs[1];
  ASSERT_EQ(call.generated.size(), 1u) << "delta is summed on the way";
  const double alone =
      codegen::kH200.launch_seconds +
      codegen::estimate(call.generated[0],
                        {.bytes = cost.generated_bytes.at(0), .dtype = DType::bf16, .work = {{}, cost.generated.at(0)}},
                        codegen::kH200, {})
          .seconds;
  EXPECT_NEAR(codegen::estimate(call, cost, codegen::kH200, {}).seconds, alone, 1e-12);
  const double rows = 1536 * 197.0, matrix = 2 * rows * 64;
  EXPECT_EQ(cost.generated_bytes, (std::vector<double>{8 * matrix + 2 * 4 * rows}));
  // Five products of whole warps of 32 keys and of 16 queries.
  EXPECT_EQ(cost.generated[0].mma_flops, 5 * 2 * 64.0 * 1536 * 224 * 208);
}

// Five products for two, and the scores of whole tiles of 128 on and below the diagonal written and read.
TEST(AttentionCalls, ByALibraryAreEstimatedWithTheScoresThatItStores) {
  const codegen::CountedProgram made = program_of({.batch = {32, 12}, .queries = 1024, .keys = 1024, .width = 64});
  const auto seconds = [&](std::size_t step, const codegen::DeviceRates& rates) {
    return codegen::estimate(made.program.steps[step], made.costs[step], rates, {}).seconds;
  };
  const double forward = seconds(0, codegen::kH200), gradient = seconds(1, codegen::kH200);
  const double scores = 32 * 12 * 1024.0 * (1024 + 128) / 2, launch = codegen::kH200.launch_seconds;
  EXPECT_NEAR(gradient - launch, 2.5 * (forward - launch) + 2 * 2 * scores / codegen::kH200.copy_bytes, 1e-9);
  codegen::DeviceRates without = codegen::kH200;
  without.attention_share = 0;
  EXPECT_NE(seconds(1, without), gradient) << "generated kernels are counted for themselves";
}

}  // namespace
}  // namespace gcomp::tests
