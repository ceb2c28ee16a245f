// The attention kernels of the CPU against the interpreter, which knows attention by its expansion.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <tuple>

#include "codegen/cpu/attention/attention.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/memory/plan_memory.h"
#include "runtime/device.h"
#include "runtime/instruction_set.h"
#include "runtime/validate.h"
#include "tests/codegen/attention_graphs.h"
#include "tests/device_options.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

using Values = std::map<std::string, Tensor>;

Values attention_inputs(const Graph& graph) {
  std::mt19937 random(3);
  Values values;
  for (const Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
  return values;
}

/// Lengths about a tile of 64 and a group of 12, heads that fill their padding and heads that do not.
std::vector<AttentionCase> cases_of_tiles() {
  std::vector<AttentionCase> cases;
  for (const std::int64_t length : {12, 64, 65, 77, 131})
    for (const bool causal : {false, true})
      cases.push_back({.label = concat(causal ? "causal_" : "all_", length),
                       .batch = {1, 2},
                       .queries = length,
                       .keys = length,
                       .width = length == 131 ? 128 : 32,
                       .value_width = length == 77    ? 64
                                      : length == 131 ? 100
                                                      : 32,
                       .attributes = {{"causal", causal}, {"scale", 0.3}},
                       .layout = AttentionLayout::packed});
  cases.push_back({.label = "later_keys",
                   .batch = {2},
                   .queries = 70,
                   .keys = 200,
                   .width = 33,
                   .value_width = 32,
                   .mask = {1, 70, 200},
                   .attributes = {{"causal", true}}});
  cases.push_back({.label = "keys_hidden",
                   .batch = {2, 3},
                   .queries = 65,
                   .keys = 140,
                   .width = 32,
                   .value_width = 31,
                   .mask = {2, 1, 1, 140},
                   .boolean = true});
  return cases;
}

/// The case with heads that are wide and many enough to be streamed.
AttentionCase streamed_case(AttentionCase c) {
  for (std::int64_t* width : {&c.width, &c.value_width})
    if (*width < 24) *width = 24 + *width % 8;
  const std::int64_t factor = (3 + element_count(c.batch)) / element_count(c.batch);
  c.batch[0] *= factor;
  if (!c.mask.empty() && c.mask[0] != 1) c.mask[0] *= factor;
  return c;
}

/// Those whose kernels have most templates in common lie next to each other.
std::vector<AttentionCase> all_cases() {
  std::vector<AttentionCase> cases;
  for (AttentionCase& c : attention_cases())
    if (std::max(c.width, c.value_width) <= 128) cases.push_back(streamed_case(std::move(c)));
  for (AttentionCase& c : cases_of_tiles()) cases.push_back(streamed_case(std::move(c)));
  const auto templates = [](const AttentionCase& c) {
    return std::tuple(quotient_up(std::max(c.width, c.value_width), 32), c.mask.empty(), c.boolean,
                      c.attributes.find("dropout") != nullptr, quotient_up(c.queries, 64));
  };
  std::stable_sort(cases.begin(), cases.end(), [&](const auto& a, const auto& b) { return templates(a) < templates(b); });
  return cases;
}

/// What all kernels of attention begin with goes before each file of kernels instead: a file then has several of them, and the
/// compiler makes what they have in common once.
void share_templates(runtime::Program& program) {
  std::string templates;
  for (runtime::Kernel& kernel : program.kernels) {
    const std::size_t start = kernel.text.find("extern \"C\" void ");
    if (kernel.text.find("gc_attention::") == std::string::npos || start == std::string::npos) continue;
    if (templates.empty()) templates = kernel.text.substr(0, start);
    ASSERT_EQ(kernel.text.compare(0, start, templates), 0) << kernel.name;
    kernel.text.erase(0, start);
  }
  program.prelude += "\n" + templates;
}

runtime::Program streamed_program(const std::vector<AttentionCase>& cases, DType dtype = DType::f32) {
  Graph graph = attention_graph(dtype, cases);
  lower_unexpanded(graph, codegen::target_info({}));
  runtime::Program program = codegen::generate(graph, passes::plan_memory(graph), {});
  runtime::validate(program);
  share_templates(program);
  return program;
}

/// `compiled` holds the kernels that an earlier call made of the same program; where it is empty it is filled.
std::vector<Tensor> outputs_of(const runtime::Program& program, const Values& values, int threads, bool without_tiles = false,
                               std::vector<std::byte>* compiled = nullptr) {
  runtime::DeviceOptions options = test::device_options(threads);
  if (without_tiles)
    options.instruction_set = runtime::vectors_of(options.instruction_set.value_or(runtime::widest_instruction_set()));
  auto device = runtime::open_device(runtime::TargetKind::cpu, options);
  auto executable = device->load(program, device->allocate_states(), compiled ? *compiled : std::vector<std::byte>());
  if (compiled) compiled->assign(executable->kernel_binary().begin(), executable->kernel_binary().end());
  for (const auto& [name, value] : values) executable->set_input(name, value);
  executable->run();
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < program.outputs.size(); ++i) outputs.push_back(executable->output(i));
  return outputs;
}

/// Relative to the largest element: a gradient's elements are sums that may cancel.
std::string streamed_difference(const Tensor& found, const Tensor& expected, double tolerance = 2e-5) {
  double scale = 1;
  for (double x : expected.to_doubles())
    if (std::isfinite(x) && std::fabs(x) < 1e30) scale = std::max(scale, std::fabs(x));
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double a = found.at(i), b = expected.at(i);
    if (a == b || (a != a && b != b) || std::fabs(a - b) <= tolerance * scale) continue;
    return concat("element ", i, " of ", to_string(expected.type()), " is ", a, ", wanted ", b);
  }
  return "";
}

std::ptrdiff_t count_streamed(const runtime::Program& program) {
  return std::count_if(program.steps.begin(), program.steps.end(), [&](const runtime::Step& step) {
    const auto* launch = std::get_if<runtime::KernelLaunch>(&step);
    return launch && program.kernels[static_cast<std::size_t>(launch->kernel)].text.find("gc_attention::") != std::string::npos;
  });
}

TEST(CpuAttention, KernelsComputeWhatTheExpansionDoes) {
  const Graph graph = attention_graph(DType::f32, all_cases());
  const Values values = attention_inputs(graph);
  const InterpretResult expected = interpret(graph, values);
  const runtime::Program program = streamed_program(all_cases());
  EXPECT_EQ(count_streamed(program), 2 * static_cast<std::ptrdiff_t>(all_cases().size()));
  const std::vector<Tensor> found = outputs_of(program, values, 2);
  for (std::size_t i = 0; i < expected.outputs.size(); ++i)
    EXPECT_EQ(streamed_difference(found[i], expected.outputs[i]), "") << graph.outputs()[i]->name;
}

TEST(CpuAttention, BitsDependNeitherOnThreadsNorOnTheWidthOfRegisters) {
  std::vector<AttentionCase> cases;
  for (AttentionCase& c : cases_of_tiles())
    if (c.label == "causal_77" || c.label == "all_131" || c.label == "later_keys") cases.push_back(streamed_case(std::move(c)));
  ASSERT_EQ(cases.size(), 3u);
  const Graph graph = attention_graph(DType::f32, cases);
  const Values values = attention_inputs(graph);
  runtime::Program program = streamed_program(cases);
  EXPECT_EQ(count_streamed(program), 2 * static_cast<std::ptrdiff_t>(cases.size()));
  std::vector<std::byte> compiled;
  const std::vector<Tensor> expected = outputs_of(program, values, 1, /*without_tiles=*/false, &compiled);
  const std::string prelude = program.prelude;
  for (const char* tile :
       {"", "#define GC_REGISTER_BYTES 64\n#define GC_TILE_ROWS 12\n", "#define GC_REGISTER_BYTES 32\n#define GC_TILE_ROWS 6\n",
        "#define GC_REGISTER_BYTES 16\n#define GC_TILE_ROWS 4\n"}) {
    program.prelude = tile + prelude;
    const std::vector<Tensor> found =
        outputs_of(program, values, 3, /*without_tiles=*/false, program.prelude == prelude ? &compiled : nullptr);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(found[i] == expected[i]) << graph.outputs()[i]->name << '\n' << tile;
  }
}

/// Inputs in bf16, and the same numbers in f32.
struct HalfInputs {
  Values half, single;
};
HalfInputs half_inputs(const Graph& half, const Graph& single) {
  HalfInputs made{attention_inputs(half), {}};
  for (const Value* input : single.inputs()) {
    const Tensor& from = made.half.at(input->name);
    Tensor to(input->type);
    for (std::int64_t i = 0; i < from.elements(); ++i) to.set(i, from.at(i));
    made.single.emplace(input->name, std::move(to));
  }
  return made;
}

/// What is put before a program's kernels makes them take tiles, those of tests/tiles_in_memory.h.
std::string tiles_in_memory() {
  std::ifstream in(std::string(GCOMP_SOURCE_DIR) + "/tests/tiles_in_memory.h");
  std::ostringstream text;
  text << "#define GC_TILES 1\n#define GC_TILES_IN_MEMORY\n"
       << in.rdbuf() << R"(namespace gc_tile {
static void begin() {}
static void end() {}
template <int T> static void zero() { InMemory::zero<T>(); }
template <int T> static void load(const void* from, long bytes) { InMemory::load<T>(from, bytes); }
template <int T> static void store(void* to, long bytes) { InMemory::store<T>(to, bytes); }
template <int C, int A, int B> static void add_products() { InMemory::add_products<C, A, B>(); }
}
)";
  return text.str();
}

/// A result is off by half an ulp at most, 2^-8 of it, and by as much again where weights and their gradients were rounded.
constexpr double kHalfTolerance = 2 * 0x1p-8;

/// More queries than the sums of dq are kept of.
AttentionCase long_case() {
  return {.label = "long",
          .batch = {4},
          .queries = 2100,
          .keys = 70,
          .width = 32,
          .value_width = 32,
          .mask = {1, 1, 70},
          .attributes = {{"scale", 0.2}}};
}

/// Kernels of bf16 beside the interpreter in f32.
struct HalfAttention {
  explicit HalfAttention(std::vector<AttentionCase> of)
      : cases(std::move(of)),
        single(attention_graph(DType::f32, cases)),
        inputs(half_inputs(attention_graph(DType::bf16, cases), single)),
        expected(interpret(single, inputs.single).outputs),
        program(streamed_program(cases, DType::bf16)) {}

  std::vector<Tensor> check(const std::string& before, bool without_tiles) const {
    EXPECT_EQ(count_streamed(program), 2 * static_cast<std::ptrdiff_t>(cases.size()));
    runtime::Program with = program;
    with.prelude = before + program.prelude;
    std::vector<Tensor> found = outputs_of(with, inputs.half, 2, without_tiles);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(streamed_difference(found[i], expected[i], kHalfTolerance), "") << single.outputs()[i]->name << without_tiles;
    return found;
  }

  std::vector<AttentionCase> cases;
  Graph single;
  HalfInputs inputs;
  std::vector<Tensor> expected;
  runtime::Program program;
};

bool takes_tiles() {
  return test::asked_instruction_set().value_or(runtime::widest_instruction_set()) == runtime::InstructionSet::amx;
}

TEST(CpuAttention, OfBf16IsThatOfF32Rounded) {
  std::vector<AttentionCase> cases = all_cases();
  cases.push_back(long_case());
  HalfAttention(std::move(cases)).check("", /*without_tiles=*/false);
}

/// Some of every kind.
std::vector<AttentionCase> few_cases() {
  std::vector<AttentionCase> cases;
  for (AttentionCase& c : all_cases())
    if (c.label == "causal_77" || c.label == "all_131" || c.label == "later_keys" || c.label == "keys_hidden" ||
        c.label.find("dropout") != std::string::npos)
      cases.push_back(std::move(c));
  return cases;
}

// Without tiles nothing is rounded but results.
TEST(CpuAttention, ResultsOfBf16AreThoseOfF32RoundedOnce) {
  const HalfAttention half(few_cases());
  const std::vector<Tensor> found = half.check("", /*without_tiles=*/true),
                            expected = outputs_of(streamed_program(half.cases), half.inputs.single, 2);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string& name = half.single.outputs()[i]->name;
    if (name.ends_with(".gradient")) continue;
    Tensor rounded(found[i].type());
    for (std::int64_t e = 0; e < rounded.elements(); ++e) rounded.set(e, expected[i].at(e));
    EXPECT_TRUE(found[i] == rounded) << name;
  }
}

TEST(CpuAttention, TilesAreThoseOfTheReference) {
  const HalfAttention half(few_cases());
  ASSERT_GE(half.cases.size(), 5u);
  const std::vector<Tensor> in_memory = half.check(tiles_in_memory(), /*without_tiles=*/true);
  if (!takes_tiles())
    GTEST_SKIP() << "this processor has no AMX, or it was not asked for: its tiles were not compared with those in memory";
  std::vector<std::byte> compiled;
  for (int threads : {1, 3}) {
    const std::vector<Tensor> own = outputs_of(half.program, half.inputs.half, threads, /*without_tiles=*/false, &compiled);
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(in_memory[i] == own[i]) << half.single.outputs()[i]->name;
  }
}

// Where dq has a turn of its own its sums are the same.
TEST(CpuAttention, GradientsOfManyQueriesAreThoseOfKeptSums) {
  const std::vector<AttentionCase> cases = {long_case()};
  const Graph graph = attention_graph(DType::bf16, cases);
  const Values values = attention_inputs(graph);
  runtime::Program program = streamed_program(cases, DType::bf16);
  const std::vector<Tensor> own_turn = outputs_of(program, values, 2);
  int changed = 0;
  for (runtime::Kernel& kernel : program.kernels)
    if (const auto at = kernel.text.find("backward<32, 0,"); at != std::string::npos) {
      kernel.text.replace(at, 15, "backward<32, 2112,");
      ++changed;
    }
  ASSERT_EQ(changed, 1);
  const std::vector<Tensor> kept = outputs_of(program, values, 2);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i] == own_turn[i]) << graph.outputs()[i]->name;
}

AttentionCase causal_case(std::int64_t width) {
  return {.label = "a",
          .batch = {2, 12},
          .queries = 512,
          .keys = 512,
          .width = width,
          .value_width = width,
          .attributes = {{"causal", true}}};
}

std::vector<codegen::cpu::AttentionLaunch> cpu_launches_of(const Graph& graph) {
  std::vector<codegen::cpu::AttentionLaunch> all;
  for (const auto& node : graph.nodes())
    if (node->op->kind == Kind::composite) all.push_back(codegen::cpu::attention_launch(*node));
  return all;
}

TEST(CpuAttention, LayersOfOneShapeShareTheirTexts) {
  const Graph graph = attention_graph(DType::f32, {causal_case(64)}), other = attention_graph(DType::f32, {causal_case(64)});
  const auto first = cpu_launches_of(graph), second = cpu_launches_of(other);
  ASSERT_EQ(first.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(first[i].text, second[i].text);
}

// A causal step computes about half of the pairs, and reads no scores.
TEST(CpuAttention, CostsCountPairsOnceAndNoScores) {
  const auto launches = cpu_launches_of(attention_graph(DType::f32, {causal_case(64)}));
  const double pairs = 24 * 512.0 * 513 / 2, rows = 24 * 512.0;
  EXPECT_DOUBLE_EQ(launches[0].cost.flops, pairs * (4 * 64 + 4));
  EXPECT_DOUBLE_EQ(launches[0].cost.bytes, 4 * rows * (4 * 64 + 2));
  EXPECT_DOUBLE_EQ(launches[1].cost.flops, pairs * (10 * 64 + 4));
  EXPECT_DOUBLE_EQ(launches[1].cost.bytes, 4 * rows * (7 * 64 + 3));
}

TEST(CpuAttention, TakesHeadsUpTo128) {
  const auto takes = [](DType dtype, std::int64_t width) {
    const Graph graph = attention_graph(dtype, {causal_case(width)});
    return std::all_of(graph.nodes().begin(), graph.nodes().end(),
                       [](const auto& node) { return node->op->kind != Kind::composite || codegen::cpu::takes_attention(*node); });
  };
  EXPECT_TRUE(takes(DType::f32, 128));
  EXPECT_FALSE(takes(DType::f32, 129));
  EXPECT_TRUE(takes(DType::bf16, 128));
  EXPECT_FALSE(takes(DType::bf16, 129));
  EXPECT_FALSE(takes(DType::f64, 64));
  EXPECT_FALSE(takes(DType::f16, 64));
}

// What would be computed of padding, or by one thread, is left to products.
TEST(CpuAttention, StreamsWhereItGains) {
  const auto gains = [](std::int64_t width, std::int64_t heads, bool causal) {
    AttentionCase c = causal_case(width);
    c.batch = {heads};
    c.attributes.set("causal", causal);
    const Graph graph = attention_graph(DType::f32, {c});
    return std::all_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
      return node->op->kind != Kind::composite || codegen::cpu::gains_from_streaming(*node);
    });
  };
  EXPECT_TRUE(gains(32, 4, false));
  EXPECT_TRUE(gains(24, 4, false));
  EXPECT_FALSE(gains(16, 4, false));
  EXPECT_TRUE(gains(16, 4, true));
  EXPECT_FALSE(gains(12, 4, true));
  EXPECT_FALSE(gains(64, 3, true));
}

}  // namespace
}  // namespace gcomp::tests
