// Random graphs with their gradients become programs for CUDA: every nest that fusion makes has a schedule and a text. Nothing is
// compiled or run, so there can be many; tests/device runs some of them.
#include <gtest/gtest.h>

#include <array>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "passes/pipeline.h"
#include "runtime/validate.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/seeds.h"

namespace gcomp::tests {
namespace {

runtime::Program cuda_program_of(int seed) {
  constexpr std::array kDTypes = {DType::f64, DType::f32, DType::bf16};
  RandomGraph drawn = random_graph(static_cast<std::uint64_t>(seed), kDTypes[static_cast<std::size_t>(seed) % kDTypes.size()]);
  append_gradients(drawn.graph);
  const runtime::Target target = runtime::parse_target("cuda:sm_90");
  passes::PipelineOptions options;
  options.target = codegen::target_info(target);
  const ir::MemoryPlan plan = passes::lower(drawn.graph, options);
  return codegen::generate(drawn.graph, plan, target);
}

TEST(CudaPrograms, AreMadeOfRandomGraphs) {
  const SeedRange range = seeds(500);
  for (int seed = range.first; seed < range.first + range.count; ++seed)
    EXPECT_NO_THROW(runtime::validate(cuda_program_of(seed))) << "seed " << seed;
}

}  // namespace
}  // namespace gcomp::tests
