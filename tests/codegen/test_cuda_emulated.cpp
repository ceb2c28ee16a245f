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
  for (const char* mark : {"gc_combine_lanes<16>", "gc_combine_lanes<32>", "gc_combine_block<", "gc_combine_columns<", "gc_best<",
                           "gc_load_vector(", "gc_fetch_vector(", "gc_store_vector(",

                           "gc_list_updates<", "gc_sort_updates<", "__shared__ float tile", "__shared__ gc_f16 tile", "gc_segment(",
                           "if (threadIdx.x == 0)", ") gc_load_vector(", "gc_divide((0x1p+0f), ", "gc_clamped(",
                           "gc_philox_uniform(", "#pragma unroll 4"}) {
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
    const auto entry = table.add({nest, types, types, false});
    EXPECT_NE(entry.emitted->text.find(type), std::string::npos) << entry.emitted->text;
    EXPECT_EQ(entry.emitted->grid.blocks, (rows * 300 / 4 + 255) / 256);
  }
}

TEST(CudaEmulated, EveryOpInEveryDtype) { run_all(op_graphs()); }
TEST(CudaEmulated, Patterns) { run_all(pattern_graphs()); }

}  // namespace
}  // namespace gcomp::tests
