// The attention kernels on the emulator against the interpreter, which knows attention by its expansion.
#include <gtest/gtest.h>

#include <random>

#include "codegen/cuda/attention/attention.h"
#include "codegen/generate.h"
#include "codegen/whole.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/plan_memory.h"
#include "runtime/validate.h"
#include "tests/codegen/attention_graphs.h"
#include "tests/codegen/cuda_shim/program_runner.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

struct Variant {
  DType dtype;
  const char* architecture;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << name_of(variant.dtype) << " on " << variant.architecture; }

class CudaAttention : public testing::TestWithParam<Variant> {};

/// Relative to the largest element: a gradient's elements are sums that may cancel.
std::string attention_difference(const Tensor& found, const Tensor& expected) {
  double scale = 1;
  for (double x : expected.to_doubles())
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x) < 1e30 ? std::fabs(x) : 1);
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double a = found.at(i), b = expected.at(i);
    if (a == b || (a != a && b != b) || std::fabs(a - b) <= cuda_shim::tolerance_of(expected.dtype()) * scale) continue;
    return concat("element ", i, " of ", to_string(expected.type()), " is ", a, ", wanted ", b);
  }
  return "";
}

TEST_P(CudaAttention, KernelsComputeWhatTheExpansionDoes) {
  const auto [dtype, architecture] = GetParam();
  Graph graph = attention_graph(dtype, attention_cases());
  std::mt19937 random(3);
  std::map<std::string, Tensor> values;
  for (const Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
  const InterpretResult expected = interpret(graph, values);
  lower_whole(graph);
  const MemoryPlan plan = passes::plan_memory(graph, {.alignment = 256});
  const runtime::Program program = codegen::generate(graph, plan, {runtime::TargetKind::cuda, architecture});
  runtime::validate(program);
  EXPECT_EQ(std::count_if(program.steps.begin(), program.steps.end(),
                          [&](const runtime::Step& step) {
                            const auto* launch = std::get_if<runtime::KernelLaunch>(&step);
                            return launch && program.kernels[static_cast<std::size_t>(launch->kernel)].text.find("<Kit>") !=
                                                 std::string::npos;
                          }),
            3 * static_cast<std::ptrdiff_t>(attention_cases().size()));
  cuda_shim::ProgramRunner runner(program);
  for (const auto& [name, value] : values) runner.write(name, value);
  ASSERT_EQ(runner.step(), "");
  for (std::size_t i = 0; i < expected.outputs.size(); ++i)
    EXPECT_EQ(attention_difference(runner.read_output(i), expected.outputs[i]), "") << graph.outputs()[i]->name;
  for (const auto& [name, value] : values) EXPECT_EQ(runner.read_input(name), value) << name << " was written";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaAttention,
                         testing::Values(Variant{DType::f64, "sm_90"}, Variant{DType::f32, "sm_90"}, Variant{DType::f16, "sm_75"},
                                         Variant{DType::bf16, "sm_90"}, Variant{DType::bf16, "sm_75"}),
                         [](const auto& info) { return concat(name_of(info.param.dtype), "_", info.param.architecture); });

Graph one_attention(DType dtype, std::int64_t width, std::int64_t queries, Shape mask = {}) {
  return attention_graph(dtype, {{.label = "a",
                                  .batch = {2, 12},
                                  .queries = queries,
                                  .keys = queries,
                                  .width = width,
                                  .value_width = width,
                                  .mask = std::move(mask),
                                  .attributes = {{"causal", true}}}});
}

bool all_whole(const Graph& graph) {
  const auto& nodes = graph.nodes();
  return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return node->op->kind != Kind::composite || codegen::takes_whole(*node, {runtime::TargetKind::cuda, "sm_90"});
  });
}

TEST(CudaAttentionTexts, AStepOfAnyDepthHasThreeKernelsOfOneShape) {
  std::set<std::string> texts;
  int launches = 0;
  const Graph graph = one_attention(DType::f32, 64, 512), other = one_attention(DType::f32, 64, 512);
  for (const Graph* g : {&graph, &other})
    for (const auto& node : g->nodes())
      if (node->op->kind == Kind::composite)
        for (const auto& launch : codegen::cuda::attention_launches(*node, 90)) texts.insert(launch.text), ++launches;
  EXPECT_EQ(launches, 6);
  EXPECT_EQ(texts.size(), 3u);
}

TEST(CudaAttentionTexts, HeadsTooWideForTheTilesAreExpanded) {
  EXPECT_TRUE(all_whole(one_attention(DType::f32, 128, 16)));
  EXPECT_FALSE(all_whole(one_attention(DType::f32, 129, 16)));
  EXPECT_FALSE(all_whole(
      attention_graph(DType::f32, {{.label = "a", .batch = {1}, .queries = 3, .keys = 4, .width = 8, .value_width = 130}})));
}

// A causal step computes about half of the pairs, and reads no scores.
TEST(CudaAttentionTexts, CostsCountPairsOnceAndNoScores) {
  const Graph graph = one_attention(DType::f32, 64, 512);
  const Node& node =
      **std::find_if(graph.nodes().begin(), graph.nodes().end(), [](const auto& n) { return n->op == &ops::kAttention; });
  const auto launch = codegen::cuda::attention_launches(node, 90)[0];
  const double pairs = 24 * 512.0 * 513 / 2, rows = 24 * 512.0;
  EXPECT_DOUBLE_EQ(launch.cost.flops, pairs * (4 * 64 + 4));
  EXPECT_DOUBLE_EQ(launch.cost.bytes, 4 * rows * (4 * 64 + 2));
}

}  // namespace
}  // namespace gcomp::tests
