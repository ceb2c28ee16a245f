// Every kernel that CUDA code generation emits, run on the CPU behind a shim and compared with the interpreter, with guard zones
// around each buffer.
#include <gtest/gtest.h>

#include <cstdio>

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

TEST(CudaEmulated, EveryOpInEveryDtype) { run_all(op_graphs()); }
TEST(CudaEmulated, Patterns) { run_all(pattern_graphs()); }

}  // namespace
}  // namespace gcomp::tests
