// Graphs on a CUDA device, through the runtime as users have it, against the interpreter: every op of the table in every dtype,
// the patterns that reach each path of the emitter, attention, and random graphs with their gradients.
//
// All become programs. The emulated driver compiles each kernel with the host's compiler, so there only every n-th of them runs
// (tests/codegen runs all kernels without the driver); on a GPU all of them do.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/interpret.h"
#include "passes/memory/plan_memory.h"
#include "passes/pipeline.h"
#include "runtime/validate.h"
#include "tests/codegen/attention_graphs.h"
#include "tests/codegen/cuda_graphs.h"
#include "tests/device/device_under_test.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/seeds.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

constexpr std::int64_t kAlignment = 256;

double graph_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-9;
    case DType::f32: return 3e-5;
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    default: return 0;
  }
}

std::map<std::string, Tensor> draw_values(const LabelledGraph& g) {
  std::mt19937 random(5);
  std::map<std::string, Tensor> values;
  const auto draw = [&](const ir::Value& value) {
    const bool position = !is_float(value.type.dtype) && value.type.dtype != DType::boolean && g.largest >= 0;
    values.emplace(value.name,
                   position ? random_tensor(value.type, 0, g.largest, random) : random_tensor(value.type, g.low, g.high, random));
  };
  for (const ir::Value* input : g.graph.inputs()) draw(*input);
  for (const ir::State& state : g.graph.states())
    if (state.fill)
      values.emplace(state.value->name, [&] {
        Tensor filled(state.value->type);
        for (std::int64_t i = 0; i < filled.elements(); ++i) filled.set(i, *state.fill);
        return filled;
      }());
    else draw(*state.value);
  return values;
}

/// "", or where the two differ by more than dtype and size allow.
std::string graph_difference(const Tensor& found, const Tensor& expected) {
  double scale = 1;
  for (std::int64_t i = 0; i < expected.elements(); ++i)
    if (std::isfinite(expected.at(i))) scale = std::max(scale, std::abs(expected.at(i)));
  const double allowed = graph_tolerance(expected.dtype()) * scale;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double a = found.at(i), b = expected.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= allowed) continue;
    return concat("element ", i, " is ", a, ", wanted ", b);
  }
  return "";
}

runtime::Program program_of(const ir::Graph& graph, const ir::MemoryPlan& plan) {
  runtime::Program program = codegen::generate(graph, plan, device_under_test().target());
  runtime::validate(program);
  return program;
}

/// Runs the program of a graph twice; the problem found, or "".
std::string run(const runtime::Program& program, const ir::Graph& graph, const std::map<std::string, Tensor>& values,
                const ir::InterpretResult& expected) {
  runtime::Device& device = device_under_test();
  const auto states = device.allocate_states();
  const auto executable = device.load(program, states);
  for (int round = 0; round < 2; ++round) {
    for (const ir::Value* input : graph.inputs()) executable->set_input(input->name, values.at(input->name));
    for (const ir::State& state : graph.states()) states->write(state.value->name, values.at(state.value->name));
    executable->run();
    for (std::size_t i = 0; i < expected.outputs.size(); ++i)
      if (const std::string d = graph_difference(executable->output(i), expected.outputs[i]); !d.empty())
        return concat("run ", round + 1, ", output ", i, ": ", d);
    for (const auto& [name, value] : expected.states)
      if (const std::string d = graph_difference(states->read(name), value); !d.empty())
        return concat("run ", round + 1, ", state ", name, ": ", d);
  }
  return "";
}

void run_graph(const LabelledGraph& g, const runtime::Program& program) {
  const auto values = draw_values(g);
  ir::InterpretResult expected;
  try {
    expected = ir::interpret(g.graph, values);
  } catch (const UserError&) {
    return;  // an index out of range, which these values are not meant for
  }
  EXPECT_EQ(run(program, g.graph, values, expected), "") << g.label;
}

/// Those of `graphs` that belong to one piece of `pieces`, by turns.
void run_all(const std::vector<LabelledGraph>& graphs, std::size_t every, std::size_t piece = 0, std::size_t pieces = 1) {
  const std::size_t step = on_real_gpu() ? 1 : every;
  std::size_t ran = 0;
  for (std::size_t i = piece; i < graphs.size(); i += pieces) {
    const LabelledGraph& g = graphs[i];
    try {
      const runtime::Program program = program_of(g.graph, passes::plan_memory(g.graph, {.alignment = kAlignment}));
      if ((i / pieces + piece) % step > 0) continue;  // not neighbours, which are one op in several dtypes
      run_graph(g, program);
      ++ran;
    } catch (const Error& error) { ADD_FAILURE() << g.label << ": " << error.what(); }
  }
  std::printf("%zu of %zu graphs on %s\n", ran, graphs.size(), device_under_test().description().c_str());
}

/// A process for each piece takes a machine's cores: on a GPU these tests are mostly NVRTC's time.
constexpr std::size_t kPieces = 16;

class DeviceOps : public testing::TestWithParam<std::size_t> {};
class DevicePatterns : public testing::TestWithParam<std::size_t> {};
TEST_P(DeviceOps, EveryOp) { run_all(op_graphs(), 28, GetParam(), kPieces); }
TEST_P(DevicePatterns, OfTheEmitter) { run_all(pattern_graphs(), 6, GetParam(), kPieces); }
INSTANTIATE_TEST_SUITE_P(Piece, DeviceOps, testing::Range<std::size_t>(0, kPieces));
INSTANTIATE_TEST_SUITE_P(Piece, DevicePatterns, testing::Range<std::size_t>(0, kPieces));

// Emulated, all cases in f64: those of few keys in 16 bits are DeviceAttention's.
TEST(DeviceGraphs, Attention) { run_all(attention_graphs(), 9); }

TEST(DeviceGraphs, Random) {
  const SeedRange range = seeds(on_real_gpu() ? 100 : 4);
  for (int seed = range.first; seed < range.first + range.count; ++seed) {
    RandomGraph drawn = random_graph(static_cast<std::uint64_t>(seed), DType::f64);
    append_gradients(drawn.graph);
    const ir::InterpretResult expected = ir::interpret(drawn.graph, drawn.values);
    passes::PipelineOptions options;
    options.target = codegen::target_info({runtime::TargetKind::cuda, "sm_90"});
    try {
      const ir::MemoryPlan plan = passes::lower(drawn.graph, options);
      EXPECT_EQ(run(program_of(drawn.graph, plan), drawn.graph, drawn.values, expected), "") << "seed " << seed;
    } catch (const Error& error) { ADD_FAILURE() << "seed " << seed << ": " << error.what(); }
  }
}

}  // namespace
}  // namespace gcomp::tests
