// How long steps take as they are written, against figures from elsewhere: what was measured on a device, what follows from a
// kernel's grid by hand, and what ptxas says of registers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "codegen/describe_steps.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "runtime/cuda/cubin_resources.h"
#include "runtime/cuda/nvrtc.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::ir;
using codegen::Family;
using codegen::kH200;
using codegen::Limit;
using codegen::StepEstimate;

codegen::CountedProgram counted_for_sm90(Graph& graph) {
  const runtime::Target target{runtime::TargetKind::cuda, "sm_90"};
  passes::PipelineOptions options;
  options.target = codegen::target_info(target);
  const MemoryPlan plan = passes::lower(graph, options);
  return codegen::generate_counted(graph, plan, target);
}

/// The estimate of the only step.
StepEstimate estimate_of(const codegen::CountedProgram& made, const codegen::EstimateOptions& options = {}) {
  EXPECT_EQ(made.program.steps.size(), 1u);
  return codegen::estimate(made.program.steps[0], made.costs[0], kH200, options);
}

runtime::MatmulCall product(std::int64_t m, std::int64_t n, std::int64_t k, std::vector<std::int64_t> batch = {}) {
  runtime::MatmulCall call;
  call.dtype = DType::bf16;
  call.m = m;
  call.n = n;
  call.k = k;
  call.batch = std::move(batch);
  return call;
}

double share_of_rate(const runtime::MatmulCall& call, double batches = 1) {
  const double flops = 2.0 * static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k) * batches;
  return flops / codegen::library_product_seconds(call, kH200.bf16, kH200) / kH200.bf16;
}

// The rate was measured with this product.
TEST(Estimate, TheProductThatWasMeasuredRunsAtTheRate) { EXPECT_NEAR(share_of_rate(product(8192, 8192, 8192)), 1, 1e-12); }

TEST(Estimate, ProductsOfFewTilesLeaveProcessorsIdle) {
  // 64 x 64 x 512: whatever the tile, a handful of blocks on 132 multiprocessors.
  EXPECT_LT(share_of_rate(product(64, 64, 512)), 0.05);
  // One tile more than a wave holds takes two: 133 against 132 blocks of 128 x 256, of a k too short to split.
  EXPECT_GT(share_of_rate(product(128, 256, 256, {132}), 132), 1.3 * share_of_rate(product(128, 256, 256, {133}), 133));
  // GPT-2's widest product is near the rate.
  EXPECT_GT(share_of_rate(product(32768, 50304, 768)), 0.85);
}

// bench/results/h200-2026-11-26, "products".
TEST(Estimate, WeightGradientsTakeWhatAnH200Took) {
  struct Timed {
    std::int64_t m, n, k;
    double seconds;
  };
  for (const Timed& timed : {Timed{3072, 768, 16384, 107.9e-6}, Timed{2304, 768, 16384, 86.6e-6}, Timed{3072, 768, 32768, 202.2e-6},
                             Timed{2304, 768, 32768, 173.6e-6}, Timed{768, 768, 32768, 61.5e-6}}) {
    const codegen::StepCost cost{.flops = 2.0 * static_cast<double>(timed.m * timed.n * timed.k), .bytes = 1, .dtype = DType::bf16};
    const double estimate = codegen::estimate(product(timed.m, timed.n, timed.k), cost, kH200, {}).seconds;
    EXPECT_NEAR(estimate / timed.seconds, 1, 0.09) << timed.m << "x" << timed.n << "x" << timed.k;
  }
}

// As measured: the library reads the operand that it sums, or the matrix beside the product, apart from what the product reads.
TEST(Estimate, WhatAnEpilogueReadsIsAddedToItsProduct) {
  runtime::MatmulCall call = product(3072, 768, 32768);
  const auto seconds = [&] {
    const codegen::StepCost cost{.flops = 2.0 * 3072 * 768 * 32768, .bytes = 1, .dtype = DType::bf16};
    return codegen::estimate(call, cost, kH200, {}).seconds;
  };
  const double plain = seconds(), read = kH200.copy_bytes * kH200.epilogue_share;
  const auto with = [&](runtime::EpilogueKind kind) {
    call.epilogue = runtime::ProductEpilogue{.library = runtime::LibraryEpilogue{kind, {}, {}}, .after = {}};
    return seconds();
  };
  EXPECT_NEAR(with(runtime::EpilogueKind::bias), plain, 1e-12);
  EXPECT_NEAR(with(runtime::EpilogueKind::bias_gradient_a), plain + 2.0 * 3072 * 32768 / read, 1e-9);
  EXPECT_NEAR(with(runtime::EpilogueKind::bias_gradient_b), plain + 2.0 * 768 * 32768 / read, 1e-9);
  EXPECT_NEAR(with(runtime::EpilogueKind::gelu_gradient), plain + 2.0 * 3072 * 768 / read, 1e-9);
}

TEST(Estimate, ALargeMapRunsAtTheCopyRate) {
  Graph graph("g");
  Builder b(graph);
  graph.outputs() = {ops::kRelu(b.input({DType::bf16, {8192, 16384}}, "x")).value};
  const codegen::CountedProgram made = counted_for_sm90(graph);
  const StepEstimate estimate = estimate_of(made);
  EXPECT_EQ(made.costs[0].work.family, Family::pointwise);
  EXPECT_EQ(estimate.limit, Limit::copy);
  EXPECT_NEAR(estimate.seconds, estimate.floor / kH200.kernel_share + kH200.launch_seconds + kH200.load_seconds, 1e-12);
  EXPECT_NEAR(estimate.floor, 2 * 2 * 8192.0 * 16384 / kH200.copy_bytes, 1e-12);
}

TEST(Estimate, ASmallMapTakesItsLaunchAndOneWaitForTheCache) {
  Graph graph("g");
  Builder b(graph);
  graph.outputs() = {ops::kRelu(b.input({DType::f32, {64}}, "x")).value};
  const StepEstimate estimate = estimate_of(counted_for_sm90(graph));
  EXPECT_EQ(estimate.limit, Limit::waits);
  EXPECT_NEAR(estimate.seconds, kH200.launch_seconds + kH200.l2_seconds, 1e-9);
}

// The batch norm of a first layer sums 64 channels over many rows: pieces of a line, each a warp's, beside whole lines.
TEST(Estimate, NoSumOfColumnsBeatsTheCopyRate) {
  for (const std::int64_t columns : {8, 64, 4096}) {
    Graph graph("g");
    Builder b(graph);
    const Var x = b.input({DType::bf16, {(std::int64_t{1} << 28) / columns, columns}}, "x");
    graph.outputs() = {b.sum(b.cast(x, DType::f32), {0}).value};
    const codegen::CountedProgram made = counted_for_sm90(graph);
    double seconds = 0;
    for (std::size_t i = 0; i < made.costs.size(); ++i)
      seconds += codegen::estimate(made.program.steps[i], made.costs[i], kH200, {}).seconds;
    EXPECT_GT(seconds, 2.0 * (std::int64_t{1} << 28) / kH200.copy_bytes) << columns;
  }
}

TEST(Estimate, Tf32HasItsOwnRate) {
  Graph graph("g");
  Builder b(graph);
  graph.outputs() = {b.matmul(b.input({DType::f32, {8192, 8192}}, "x"), b.input({DType::f32, {8192, 8192}}, "w")).value};
  const codegen::CountedProgram made = counted_for_sm90(graph);
  const StepEstimate strict = estimate_of(made), tf32 = estimate_of(made, {.tf32 = true});
  EXPECT_NEAR(strict.floor / tf32.floor, kH200.tf32 / kH200.f32, 1e-9);
  EXPECT_GT(strict.seconds, 4 * tf32.seconds);
}

TEST(Estimate, AttentionInTf32HasKernelsOfItsOwn) {
  Graph graph("g");
  Builder b(graph);
  const auto matrix = [&](const char* name) { return b.input({DType::f32, {8, 12, 512, 64}}, name); };
  graph.outputs() = {b.apply_many(ops::kAttention, {matrix("q"), matrix("k"), matrix("v")})[0].value};
  const codegen::CountedProgram made = counted_for_sm90(graph);
  EXPECT_EQ(made.program.kernels.size(), 2u);
  const StepEstimate strict = estimate_of(made), tf32 = estimate_of(made, {.tf32 = true});
  EXPECT_NEAR(strict.floor / tf32.floor, kH200.tf32 / kH200.f32, 1e-9);
  EXPECT_GT(strict.seconds, 1.5 * tf32.seconds);
  EXPECT_GT(tf32.seconds, 2 * tf32.floor);
}

TEST(Estimate, NoStepIsFasterThanItsFloor) {
  Graph graph("g");
  Builder b(graph);
  const Var x = b.input({DType::bf16, {512, 1024}}, "x"), w = b.input({DType::bf16, {1024, 256}}, "w");
  const Var y = ops::kRelu(b.matmul(x, w));
  graph.outputs() = {b.sum(y, {0}).value, b.sum(y, {1}).value, b.transpose(y, {1, 0}).value};
  const codegen::CountedProgram made = counted_for_sm90(graph);
  for (std::size_t i = 0; i < made.costs.size(); ++i) {
    const StepEstimate estimate = codegen::estimate(made.program.steps[i], made.costs[i], kH200, {});
    EXPECT_GE(estimate.seconds, estimate.floor) << i;
  }
}

// More registers, fewer threads at once, more rounds of waiting.
TEST(Estimate, RegistersBoundWhatAMultiprocessorHolds) {
  Graph graph("g");
  Builder b(graph);
  graph.outputs() = {b.sum(b.input({DType::bf16, {1 << 18, 64}}, "x"), {1}).value};
  const codegen::CountedProgram made = counted_for_sm90(graph);
  const std::vector<codegen::KernelResources> few(made.program.kernels.size(), {32, 0}), many(few.size(), {255, 0});
  const double with_few = estimate_of(made, {.resources = few}).waves, with_many = estimate_of(made, {.resources = many}).waves;
  EXPECT_EQ(with_many, 8 * with_few);  // one block of 256 threads instead of eight
}

TEST(CubinResources, RegistersAreThoseThatPtxasReports) {
  Graph graph("g");
  Builder b(graph);
  const Var x = b.input({DType::f32, {300, 2000}}, "x");
  graph.outputs() = {(x - b.unreduce(b.max(x, {1}), x.shape(), {1})).value, b.sum(x, {0}).value};
  const codegen::CountedProgram made = counted_for_sm90(graph);
  const runtime::cuda::LibrarySearch search =
      runtime::cuda::search_by_variables([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
  const runtime::cuda::LibraryResult library = runtime::cuda::find_library(runtime::cuda::LibraryKind::nvrtc, search);
  if (!library.library) GTEST_SKIP() << library.description(runtime::cuda::LibraryKind::nvrtc);
  const auto nvrtc = runtime::cuda::Nvrtc::find(search);
  const std::vector<std::string> verbose{"--ptxas-options=-v"};
  for (const runtime::Kernel& kernel : made.program.kernels) {
    const runtime::cuda::Cubin cubin =
        nvrtc.compile(runtime::cuda::kernel_source(made.program, kernel), "sm_90", kernel.name, verbose);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(cubin.log, found, std::regex("Used ([0-9]+) registers"))) << cubin.log;
    const runtime::cuda::CubinResources resources = runtime::cuda::resources_of_cubin(cubin.image);
    EXPECT_EQ(resources.registers, std::stoi(found[1]));
    std::smatch shared;
    const int bytes = std::regex_search(cubin.log, shared, std::regex("([0-9]+) bytes smem")) ? std::stoi(shared[1]) : 0;
    constexpr int kReserved = 1024;  // by the system, of each block
    EXPECT_EQ(resources.shared_bytes, bytes == 0 ? 0 : bytes + kReserved) << cubin.log;
  }
}

TEST(CubinResources, WhatIsNoCubinIsRefused) {
  EXPECT_THROW(runtime::cuda::resources_of_cubin({}), DeviceError);
  const std::vector<std::byte> zeros(4096);
  EXPECT_THROW(runtime::cuda::resources_of_cubin(zeros), DeviceError);
}

}  // namespace
}  // namespace gcomp::tests
