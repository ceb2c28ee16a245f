// The attention kernels on the emulator against the interpreter, which knows attention by its expansion.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "codegen/cuda/attention/attention.h"
#include "codegen/generate.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "passes/attention/match_attention.h"
#include "passes/fusion/fuse.h"
#include "passes/memory/plan_memory.h"
#include "passes/training/differentiate.h"
#include "runtime/validate.h"
#include "tests/codegen/attention_graphs.h"
#include "tests/codegen/cuda_shim/program_runner.h"
#include "tests/cuda/shim/host_module.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

struct Variant {
  DType dtype;
  const char* architecture;
  cuda_shim::Rounding rounding = cuda_shim::Rounding::none;
};

std::string label_of(const Variant& v) {
  return concat(v.rounding == cuda_shim::Rounding::tf32 ? "tf32" : name_of(v.dtype), "_", v.architecture);
}
void PrintTo(const Variant& variant, std::ostream* out) { *out << label_of(variant); }

class CudaAttention : public testing::TestWithParam<Variant> {};

/// Relative to the largest element: a gradient's elements are sums that may cancel.
std::string attention_difference(const Tensor& found, const Tensor& expected, double tolerance) {
  double scale = 1;
  for (double x : expected.to_doubles())
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x) < 1e30 ? std::fabs(x) : 1);
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double a = found.at(i), b = expected.at(i);
    if (a == b || (a != a && b != b) || std::fabs(a - b) <= tolerance * scale) continue;
    return concat("element ", i, " of ", to_string(expected.type()), " is ", a, ", wanted ", b);
  }
  return "";
}

/// Of attention's kernels, those within its calls included.
std::ptrdiff_t count_attention_launches(const runtime::Program& program) {
  const auto is_attention = [&](const runtime::KernelLaunch& launch) {
    return program.kernels[static_cast<std::size_t>(launch.kernel)].text.find("<Kit") != std::string::npos;
  };
  std::ptrdiff_t count = 0;
  for (const runtime::Step& step : program.steps) {
    if (const auto* launch = std::get_if<runtime::KernelLaunch>(&step)) count += is_attention(*launch);
    if (const auto* call = std::get_if<runtime::AttentionCall>(&step))
      count += std::ranges::count_if(call->generated, is_attention);
  }
  return count;
}

bool is_wide(const AttentionCase& c) { return std::max(c.width, c.value_width) > 128; }

bool on_tensor_cores(const Variant& v) {
  const std::string_view architecture = v.architecture;
  return v.dtype == DType::f16 || (v.dtype == DType::bf16 && architecture != "sm_75");
}

/// Whether its gradient has the one launch whose blocks own whole heads.
bool has_short_gradient(const Variant& v, const AttentionCase& c) {
  return on_tensor_cores(v) && v.architecture != std::string_view("sm_75") && c.mask.empty() && !c.attributes.find("dropout") &&
         c.keys <= 256 && std::max(c.width, c.value_width) <= 64;
}

/// Those of every dtype, in f64 without wide heads, in 16 bits those of few keys, and in TF32 one of each tile that they leave out.
std::vector<AttentionCase> cases_of(const Variant& variant) {
  std::vector<AttentionCase> cases = attention_cases();
  if (variant.dtype == DType::f64) std::erase_if(cases, is_wide);
  if (on_tensor_cores(variant) && variant.architecture != std::string_view("sm_75")) {
    for (AttentionCase& c : short_attention_cases()) cases.push_back(std::move(c));
    cases.push_back(outruns_library());
  }
  if (variant.rounding == cuda_shim::Rounding::none) return cases;
  for (const std::int64_t width : {48, 80, 96})
    cases.push_back({.label = concat("tf32_of_", width),
                     .batch = {2},
                     .queries = 70,
                     .keys = 70,
                     .width = width,
                     .value_width = width - 6,
                     .attributes = {{"causal", width == 80}}});
  return cases;
}

TEST_P(CudaAttention, KernelsComputeWhatTheExpansionDoes) {
  const auto [dtype, architecture, rounding] = GetParam();
  const bool tf32 = rounding == cuda_shim::Rounding::tf32;
  const std::vector<AttentionCase> cases = cases_of(GetParam());
  Graph graph = attention_graph(dtype, cases);
  std::mt19937 random(3);
  std::map<std::string, Tensor> values;
  for (const Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
  const InterpretResult expected = interpret(graph, values);
  lower_unexpanded(graph);
  const MemoryPlan plan = passes::plan_memory(graph, {.alignment = 256});
  const runtime::Program program = codegen::generate(graph, plan, {runtime::TargetKind::cuda, architecture});
  runtime::validate(program);
  // On tensor cores the gradients of wide keys and values have a launch each, and those of few keys share theirs with the queries'.
  const std::ptrdiff_t more = on_tensor_cores(GetParam()) ? std::ranges::count_if(cases, is_wide) : 0;
  const std::ptrdiff_t fewer =
      std::ranges::count_if(cases, [&](const AttentionCase& c) { return has_short_gradient(GetParam(), c); });
  EXPECT_EQ(count_attention_launches(program), 3 * static_cast<std::ptrdiff_t>(cases.size()) + more - fewer);
  cuda_shim::ProgramRunner runner(program, cuda_shim::Products::generated, rounding);
  for (const auto& [name, value] : values) runner.write(name, value);
  ASSERT_EQ(runner.step(), "");
  // TF32 has as many bits behind the point as f16.
  const double tolerance = cuda_shim::tolerance_of(tf32 ? DType::f16 : dtype);
  int rounded = 0;
  for (std::size_t i = 0; i < expected.outputs.size(); ++i) {
    const Tensor found = runner.read_output(i);
    EXPECT_EQ(attention_difference(found, expected.outputs[i], tolerance), "") << graph.outputs()[i]->name;
    rounded += !attention_difference(found, expected.outputs[i], cuda_shim::tolerance_of(dtype)).empty();
  }
  EXPECT_EQ(rounded > 0, tf32);
  if (cuda_shim::watch_by_environment() == cuda_shim::Watch::nothing) {  // a second step makes the same accesses
    std::vector<Tensor> once;
    for (std::size_t i = 0; i < expected.outputs.size(); ++i) once.push_back(runner.read_output(i));
    ASSERT_EQ(runner.step(), "");
    for (std::size_t i = 0; i < once.size(); ++i)
      EXPECT_EQ(runner.read_output(i), once[i]) << graph.outputs()[i]->name << " varies";
  }
  for (const auto& [name, value] : values) EXPECT_EQ(runner.read_input(name), value) << name << " was written";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaAttention,
                         testing::Values(Variant{DType::f64, "sm_90"}, Variant{DType::f32, "sm_90"}, Variant{DType::f16, "sm_75"},
                                         Variant{DType::f16, "sm_80"}, Variant{DType::bf16, "sm_90"}, Variant{DType::bf16, "sm_75"},
                                         Variant{DType::f32, "sm_80", cuda_shim::Rounding::tf32}),
                         [](const auto& info) { return label_of(info.param); });

/// softmax(q k^T) with dropout, times v, and the gradients of all three, as exporters write it.
Graph written_dropout(std::int64_t keys) {
  Graph graph = parse(concat("graph @g(%q: f32[2,3,40,16], %k: f32[2,3,", keys, ",16], %v: f32[2,3,", keys,
                             ",16], %dy: f32[2,3,40,16], %seed: i64[], %step: i64[]) -> (%loss) {\n",
                             "  %s = matmul %q, %k {transpose_b=true}\n  %p = softmax %s {axis=3}\n",
                             "  %u = random_uniform %seed, %step {op_id=3, shape=[2,3,40,", keys, "]}\n",
                             "  %r = full {dtype=f32, shape=[2,3,40,", keys, "], value=0.2}\n  %keep = less_equal %r, %u\n",
                             "  %f = full {dtype=f32, shape=[2,3,40,", keys, "], value=1.25}\n  %more = mul %p, %f\n",
                             "  %none = full {dtype=f32, shape=[2,3,40,", keys, "], value=0}\n",
                             "  %d = select %keep, %more, %none\n  %y = matmul %d, %v\n  %w = mul %y, %dy\n",
                             "  %loss = reduce_sum %w {axes=[0,1,2,3]}\n}"));
  return graph;
}

std::vector<Value*> inputs_named(const Graph& graph, std::initializer_list<std::string_view> names) {
  std::vector<Value*> found;
  for (const Value* input : graph.inputs())
    if (std::ranges::count(names, std::string_view(input->name)) > 0) found.push_back(const_cast<Value*>(input));
  return found;
}

// What is drawn on the device, packed and read by three kernels is what the graph says without them; rows of whole bytes and
// others.
TEST(CudaAttentionDropout, DropsWhatTheWrittenGraphDoes) {
  for (const std::int64_t keys : {64, 45}) {
    Graph written = written_dropout(keys), matched = written_dropout(keys);
    ASSERT_EQ(passes::match_attention(matched, codegen::cuda::takes_attention), 1);
    for (Graph* graph : {&written, &matched}) {
      const std::vector<Value*> gradients =
          passes::differentiate(*graph, graph->outputs()[0], inputs_named(*graph, {"q", "k", "v"}));
      graph->outputs().insert(graph->outputs().end(), gradients.begin(), gradients.end());
      graph->remove_dead();
    }
    std::mt19937 random(5);
    std::map<std::string, Tensor> values;
    for (const Value* input : written.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
    values.at("seed").set(0, 41);
    values.at("step").set(0, 3);
    const InterpretResult expected = interpret(written, values);
    lower_unexpanded(matched);
    const MemoryPlan plan = passes::plan_memory(matched, {.alignment = 256});
    const runtime::Program program = codegen::generate(matched, plan, {runtime::TargetKind::cuda, "sm_90"});
    EXPECT_EQ(count_attention_launches(program), 3);
    cuda_shim::ProgramRunner runner(program);
    for (const auto& [name, value] : values) runner.write(name, value);
    ASSERT_EQ(runner.step(), "");
    for (std::size_t i = 0; i < expected.outputs.size(); ++i)
      EXPECT_EQ(attention_difference(runner.read_output(i), expected.outputs[i], cuda_shim::tolerance_of(DType::f32)), "")
          << keys << " keys, output " << i;
  }
}

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
  return std::all_of(nodes.begin(), nodes.end(),
                     [](const auto& node) { return node->op->kind != Kind::composite || codegen::cuda::takes_attention(*node); });
}

// Three kernels of f32 and the same three in TF32, which sm_75 and other dtypes do not have.
TEST(CudaAttentionTexts, Tf32IsOfF32FromAmpereOn) {
  const auto rounding = [](DType dtype, int architecture) {
    const Graph graph = one_attention(dtype, 64, 512);
    std::ptrdiff_t count = 0;
    for (const auto& node : graph.nodes())
      if (node->op->kind == Kind::composite)
        count += std::ranges::count_if(codegen::cuda::attention_launches(*node, architecture),
                                       [](const auto& launch) { return launch.tf32.has_value(); });
    return count;
  };
  EXPECT_EQ(rounding(DType::f32, 80), 3);
  EXPECT_EQ(rounding(DType::f32, 75), 0);
  EXPECT_EQ(rounding(DType::f64, 90), 0);
  EXPECT_EQ(rounding(DType::bf16, 90), 0);
}

TEST(CudaAttentionTexts, AStepOfAnyDepthHasThreeKernelsOfOneShape) {
  std::set<std::string> texts;
  int launches = 0;
  const Graph graph = one_attention(DType::f32, 64, 512), other = one_attention(DType::f32, 64, 512);
  for (const Graph* g : {&graph, &other})
    for (const auto& node : g->nodes())
      if (node->op->kind == Kind::composite)
        for (const auto& launch : codegen::cuda::attention_launches(*node, 90)) texts.insert(launch.kernel.text), ++launches;
  EXPECT_EQ(launches, 6);
  EXPECT_EQ(texts.size(), 3u);
}

TEST(CudaAttentionTexts, HeadsTooWideForTheTilesAreExpanded) {
  EXPECT_TRUE(all_whole(one_attention(DType::f32, 256, 16)));
  EXPECT_FALSE(all_whole(one_attention(DType::f32, 257, 16)));
  EXPECT_TRUE(all_whole(one_attention(DType::f64, 128, 16)));
  EXPECT_FALSE(all_whole(one_attention(DType::f64, 129, 16)));
  EXPECT_FALSE(all_whole(
      attention_graph(DType::bf16, {{.label = "a", .batch = {1}, .queries = 3, .keys = 4, .width = 8, .value_width = 260}})));
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

AttentionCase packed_case(std::int64_t width) {
  return {.label = "a",
          .batch = {2, 12},
          .queries = 64,
          .keys = 64,
          .width = width,
          .value_width = width,
          .attributes = {{"causal", true}},
          .layout = AttentionLayout::packed};
}

/// Launches of the attention nodes of a lowered graph.
std::vector<codegen::cuda::AttentionLaunch> launches_of(const Graph& graph) {
  std::vector<codegen::cuda::AttentionLaunch> all;
  for (const auto& node : graph.nodes())
    if (node->op->kind == Kind::composite)
      for (auto& launch : codegen::cuda::attention_launches(*node, 90)) all.push_back(std::move(launch));
  return all;
}

// Nothing but attention and the sums of dy * y runs: no matrix is moved to where a kernel wants it.
TEST(CudaAttentionViews, NoKernelOnlyMovesAMatrix) {
  for (AttentionCase c : attention_cases()) {
    if (c.layout == AttentionLayout::matrices) continue;
    Graph graph = attention_graph(DType::f32, {c});
    lower_unexpanded(graph);
    const bool summed = c.layout == AttentionLayout::shared;  // gradients of keys and values, over the heads, in one kernel
    const bool packed = c.attributes.find("dropout");         // the bits that it keeps
    EXPECT_EQ(passes::count_launches(graph), 2 + 1 + (summed ? 1 : 0) + (packed ? 1 : 0)) << c.label << '\n' << print(graph);
  }
}

// A part of a packed buffer costs what a matrix of its own would.
TEST(CudaAttentionViews, CostWhatTheyTouch) {
  AttentionCase apart = packed_case(64);
  apart.layout = AttentionLayout::matrices;
  Graph packed = attention_graph(DType::f32, {packed_case(64)}), matrices = attention_graph(DType::f32, {apart});
  lower_unexpanded(packed);
  lower_unexpanded(matrices);
  const auto found = launches_of(packed), wanted = launches_of(matrices);
  ASSERT_EQ(found.size(), 3u);
  ASSERT_EQ(wanted.size(), 3u);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].cost.bytes, wanted[i].cost.bytes);
  EXPECT_EQ(found[0].values[0], found[0].values[2]);
  EXPECT_EQ(found[2].values[7], found[2].values[8]) << "dk and dv lie in one buffer";
}

// Elements are counted in 32 bits where that is enough for the whole matrix.
TEST(CudaAttentionViews, CountElementsInAsManyBitsAsTheyNeed) {
  for (const std::int64_t rows : {16384, 32768}) {
    const Graph graph =
        parse(concat("graph @g(%x: f32[32768,65536]) -> () {\n  %y, %top, %sum = attention %x, %x, %x {operand_views=[",
                     concat("(1,", rows, ",8):(0,65536,1), (1,", rows, ",8):(0,65536,1), (1,", rows, ",8):(0,65536,1)"), "]}\n}"));
    const std::string text = launches_of(graph)[0].kernel.text;
    EXPECT_NE(text.find(concat("65536, 4, ", rows == 16384 ? "true" : "false", "}")), std::string::npos) << rows;
  }
}

// Kernels know four strides of the batch. What needs more is read dense.
TEST(CudaAttentionViews, AreNotTakenWhereTheBatchHasTooManyStrides) {
  for (const bool many : {false, true}) {
    Graph graph;
    Builder b(graph);
    const Shape shape{2, 2, 2, 2, 2, 3, 4};
    Var x = b.input({DType::f32, shape}, "x");
    Var q = b.transpose(x, many ? Shape{4, 3, 2, 1, 0, 5, 6} : Shape{1, 0, 2, 3, 4, 5, 6});
    graph.outputs() = {b.apply_many(ops::kAttention, {q, x, x})[0].value};
    lower_unexpanded(graph);
    EXPECT_TRUE(all_whole(graph));
    EXPECT_EQ(graph.nodes().back()->attributes.find("operand_views") == nullptr, many) << print(graph);
  }
}

// Elements move in vectors where offset, strides and width allow it.
TEST(CudaAttentionViews, MoveAsManyElementsAsTheStridesAllow) {
  const auto width_of_values = [](std::int64_t width) {
    Graph graph = attention_graph(DType::bf16, {packed_case(width)});
    lower_unexpanded(graph);
    const std::string text = launches_of(graph)[0].kernel.text,
                      wanted = concat("{", 24 * width, ", {0, 0, ", 64 * 36 * width, ", ", width, "}, ", 36 * width, ", ");
    const std::size_t at = text.find(wanted);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + wanted.size()));
  };
  EXPECT_EQ(width_of_values(64), 8);
  EXPECT_EQ(width_of_values(12), 4);
  EXPECT_EQ(width_of_values(5), 1);
}

}  // namespace
}  // namespace gcomp::tests
