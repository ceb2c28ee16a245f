// Every kernel that CUDA code generation emits, run on the CPU behind a shim and compared with the interpreter, with guard zones
// around each buffer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "codegen/cuda/target.h"
#include "ir/ops/table.h"
#include "tests/codegen/cuda_graphs.h"
#include "tests/codegen/cuda_shim/kernel_runner.h"

namespace gcomp::tests {
namespace {

void run_all(std::vector<LabelledGraph> graphs) {
  cuda_shim::KernelRunner runner;
  for (const LabelledGraph& g : graphs) runner.add_graph(g.label, g.graph, g.low, g.high, g.largest);
  ASSERT_GT(runner.cases().size(), graphs.size() / 2);
  const std::vector<std::string> problems = runner.run();
  for (const std::string& problem : problems) ADD_FAILURE() << problem;
  std::printf("%zu kernels of %zu cases\n", runner.kernels().size(), runner.cases().size());
}

TEST(CudaEmulated, PatternsReachEveryPathOfTheEmitter) {
  cuda_shim::KernelRunner runner;
  for (const LabelledGraph& g : pattern_graphs()) runner.add_kernels(g.graph);
  for (const char* mark : {"gc_combine_lanes<16>",
                           "gc_combine_lanes<32>",
                           "gc_combine_block<",
                           "gc_combine_columns<",
                           "for (unsigned above = 0;",
                           "gc_held + 0",
                           "gc_vector_start<8, gc_index>(",
                           "gc_exp_of_16_bits(",
                           "gc_store_vectors<4>(",
                           "gc_store_vectors<8>(",
                           "const unsigned n = t % ",
                           "const bool whole = ",
                           "gc_best<",
                           "gc_load_vector(",
                           "gc_fetch_vector(",
                           "gc_store_vector(",
                           "const int k = first + q;",
                           "first = lane;",
                           "gc_list_updates<",
                           "gc_sort_updates<",
                           "__shared__ float tile",
                           "__shared__ gc_f16 tile",
                           "gc_segment(",
                           "if (threadIdx.x == 0)",
                           ") gc_fetch_vector(",
                           "gc_divide((0x1p+0f), ",
                           "gc_clamped(",
                           "gc_philox_uniform(",
                           "#pragma unroll 4"}) {
    const auto has = [&](const runtime::Kernel& kernel) { return kernel.text.find(mark) != std::string::npos; };
    EXPECT_TRUE(std::any_of(runner.kernels().begin(), runner.kernels().end(), has)) << mark;
  }
}

// 32-bit indices where everything fits, 64-bit ones where not; buffers of that size are not made here.
TEST(CudaEmulated, LargeArraysHaveWideIndices) {
  for (const auto& [rows, type] :
       {std::pair<std::int64_t, const char*>{1 << 20, "typedef int gc_index;"}, {1 << 23, "typedef long long gc_index;"}}) {
    const TensorType x{DType::f32, {rows, 300}};
    const std::vector<TensorType> types{x};
    const ir::LoopNest nest = ir::loops_of(ir::ops::kNeg, types, types, {});
    codegen::KernelTable table(codegen::cuda::kTarget);
    const auto entry = table.add({nest, types, types});
    EXPECT_NE(entry.emitted->text.find(type), std::string::npos) << entry.emitted->text;
    EXPECT_EQ(entry.emitted->grid.blocks, (rows * 300 / 4 + 255) / 256);
  }
}

/// The kernel of one op.
codegen::EmittedKernel emitted(const ir::OpDef& op, std::vector<TensorType> operands, TensorType result,
                               ir::Attributes attributes) {
  const std::vector<TensorType> results{std::move(result)};
  codegen::KernelTable table(codegen::cuda::kTarget);
  return *table.add({ir::loops_of(op, operands, results, attributes), operands, results}).emitted;
}

// Sums over the rows of a batch norm's parts: 65,536 threads, each with vectors of 16 bytes, eight of which fill a line.
TEST(CudaEmulated, ColumnsReadWholeLinesAndFillADevice) {
  for (const Shape& shape : {Shape{256, 12544, 64}, Shape{16, 784, 2048}}) {
    const codegen::EmittedKernel kernel = emitted(ir::ops::kReduceSum, {{DType::bf16, shape}}, {DType::bf16, {shape[0], shape[2]}},
                                                  {{"axes", std::vector<std::int64_t>{1}}});
    EXPECT_NE(kernel.text.find("gc_vector<gc_bf16, 8> "), std::string::npos) << kernel.text;
    EXPECT_GE(kernel.grid.blocks * kernel.grid.threads, 1 << 16) << kernel.text;
    EXPECT_GE(kernel.grid.blocks, 256) << kernel.text;
  }
}

// GPT-2's: each block reads all ids, and there are as many as fill a device, not one for each of 50,257 destinations.
TEST(CudaEmulated, EmbeddingGradientsHaveABlockForEachRangeOfDestinations) {
  const codegen::EmittedKernel kernel =
      emitted(ir::ops::kScatterAdd, {{DType::i64, {32768}}, {DType::f32, {32768, 768}}}, {DType::f32, {50257, 768}},
              {{"axis", std::int64_t{0}}, {"size", std::int64_t{50257}}});
  EXPECT_GE(kernel.grid.blocks, 264) << kernel.text;
  EXPECT_LE(kernel.grid.blocks, 512) << kernel.text;
}

TEST(CudaEmulated, EveryOpInEveryDtype) { run_all(op_graphs()); }
TEST(CudaEmulated, Patterns) { run_all(pattern_graphs()); }

}  // namespace
}  // namespace gcomp::tests
