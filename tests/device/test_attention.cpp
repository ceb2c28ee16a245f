// Attention and its gradients on a CUDA device against the interpreter: of f32 rounded to TF32 where that is asked for, of bf16
// where a library computes the forward pass and where a block has a whole head's gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "codegen/generate.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/memory/plan_memory.h"
#include "runtime/validate.h"
#include "tests/codegen/attention_graphs.h"
#include "tests/device/device_under_test.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

/// Heads of each tile, with and without a causal mask.
std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const std::int64_t width : {16, 32, 64, 80, 128})
    all.push_back({.label = concat("width_", width),
                   .batch = {2, 3},
                   .queries = 150,
                   .keys = 150,
                   .width = width,
                   .value_width = width,
                   .attributes = {{"causal", width % 32 == 0}}});
  return all;
}

/// The largest difference of each output, relative to its largest element.
std::vector<double> differences(const ir::Graph& graph, const std::map<std::string, Tensor>& values,
                                const std::vector<Tensor>& expected, runtime::MatmulPrecision precision) {
  const std::unique_ptr<runtime::Device> device = open_device_under_test(false, precision);
  const runtime::Program program = codegen::generate(graph, passes::plan_memory(graph, {.alignment = 256}), device->target());
  runtime::validate(program);
  const auto executable = device->load(program, device->allocate_states());
  for (const auto& [name, value] : values) executable->set_input(name, value);
  executable->run();
  std::vector<double> all;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Tensor found = executable->output(i);
    double largest = 0, difference = 0;
    for (std::int64_t e = 0; e < found.elements(); ++e) {
      largest = std::max(largest, std::abs(expected[i].at(e)));
      difference = std::max(difference, std::abs(found.at(e) - expected[i].at(e)));
    }
    all.push_back(difference / largest);
  }
  return all;
}

TEST(DeviceAttention, IsRoundedToTf32WhereThatIsAskedFor) {
  ir::Graph graph = attention_graph(DType::f32, cases());
  std::mt19937 random(3);
  std::map<std::string, Tensor> values;
  for (const ir::Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
  const std::vector<Tensor> expected = ir::interpret(graph, values).outputs;
  lower_unexpanded(graph);
  const std::vector<double> strict = differences(graph, values, expected, runtime::MatmulPrecision::strict),
                            fast = differences(graph, values, expected, runtime::MatmulPrecision::tf32);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string& name = graph.outputs()[i]->name;
    EXPECT_LT(strict[i], 2e-5) << name;
    EXPECT_LT(fast[i], 4e-3) << name;
    EXPECT_GT(fast[i], 2e-5) << name << " was not rounded";
  }
}

/// What an attention in bf16 gives, twice.
class AttentionInBf16 {
 public:
  explicit AttentionInBf16(const std::vector<AttentionCase>& cases) : AttentionInBf16(attention_graph(DType::bf16, cases)) {}
  explicit AttentionInBf16(ir::Graph graph) : graph_(std::move(graph)) {
    std::mt19937 random(5);
    for (const ir::Value* input : graph_.inputs()) values_.emplace(input->name, random_tensor(input->type, -1, 1, random));
    expected = ir::interpret(graph_, values_).outputs;
    for (const ir::Value* output : graph_.outputs()) names.push_back(output->name);
    lower_unexpanded(graph_);
  }

  void run(const std::unique_ptr<runtime::Device>& device) {
    const runtime::Program program = codegen::generate(graph_, passes::plan_memory(graph_, {.alignment = 256}), device->target());
    runtime::validate(program);
    const auto executable = device->load(program, device->allocate_states());
    for (const auto& [name, value] : values_) executable->set_input(name, value);
    executable->run();
    for (std::size_t i = 0; i < expected.size(); ++i) found.push_back(executable->output(i));
    executable->run();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(executable->output(i), found[i]) << names[i] << " varies";
  }

  /// Relative to an element, or to 1 where it is smaller.
  void expect_near(std::size_t output, double tolerance) const {
    for (std::int64_t e = 0; e < expected[output].elements(); ++e) {
      const double wanted = expected[output].at(e);
      ASSERT_NEAR(found[output].at(e), wanted, tolerance * std::max(1.0, std::abs(wanted))) << names[output] << ", element " << e;
    }
  }

  std::vector<std::string> names;
  std::vector<Tensor> expected, found;

 private:
  ir::Graph graph_;
  std::map<std::string, Tensor> values_;
};

constexpr double kStatistics = 1e-4, kRounded = 0x1p-7;  // of rows in f32, and of what is rounded to bf16

// A forward pass by the library, where it is there and takes it, whose rows the gradient by our kernels reads: y, top, sum, then
// the gradients.
TEST(DeviceAttention, HasAGradientOfItsOwnBehindALibrarysForwardPass) {
  AttentionInBf16 attention({outruns_library()});
  attention.run(open_device_under_test(/*use_libraries=*/true));
  ASSERT_EQ(attention.names[1], "outruns_library.top");
  ASSERT_EQ(attention.names[2], "outruns_library.sum");
  const bool by_library = attention.found[2].at(0) == 1;
  EXPECT_TRUE(by_library || on_real_gpu()) << "the emulated library takes it";
  if (by_library) {
    Tensor &top = attention.expected[1], &sum = attention.expected[2];
    for (std::int64_t e = 0; e < top.elements(); ++e) {
      top.set(e, top.at(e) + std::log(sum.at(e)));
      sum.set(e, 1);
    }
  }
  for (std::size_t i = 0; i < attention.names.size(); ++i) attention.expect_near(i, i == 1 || i == 2 ? kStatistics : kRounded);
}

// Asked for the library wherever it takes a call, the gradient is its own too: nobody fills sums with ones.
TEST(DeviceAttention, IsOfTheLibraryWhereThatIsPreferred) {
  AttentionInBf16 attention({outruns_library()});
  attention.run(open_device_under_test(/*use_libraries=*/true, runtime::MatmulPrecision::strict, /*prefer_cudnn=*/true));
  EXPECT_NE(attention.found[2].at(0), 1);
  for (std::size_t i = 3; i < attention.names.size(); ++i) attention.expect_near(i, kRounded);
}

/// Attention whose dy repeats along the first and the last of three dimensions of the batch: no two strides describe that.
ir::Graph repeated_gradient() {
  ir::Graph graph("g");
  ir::Builder b(graph);
  const Shape shape{2, 3, 2, 5, 16};
  const auto matrix = [&](const char* name) { return b.input({DType::bf16, shape}, name); };
  const ir::Var q = matrix("q"), k = matrix("k"), v = matrix("v");
  const ir::Var dy = b.broadcast(b.input({DType::bf16, {3, 5, 16}}, "dy"), shape, {1, 3, 4});
  const std::vector<ir::Var> forward = b.apply_many(ir::ops::kAttention, {q, k, v});
  const ir::Var delta = b.sum(b.cast(dy, DType::f32) * b.cast(forward[0], DType::f32), {4});
  const auto gradients = b.apply_many(ir::ops::kAttentionGradient, {q, k, v, dy, forward[0], forward[1], forward[2], delta});
  for (const ir::Var& result : {forward[0], gradients[0], gradients[1], gradients[2]}) graph.outputs().push_back(result.value);
  return graph;
}

// The forward pass is one that a library could take, its gradient is not.
TEST(DeviceAttention, IsAllOfOursWhereAKernelReadsItsRows) {
  AttentionInBf16 attention(repeated_gradient());
  attention.run(open_device_under_test(/*use_libraries=*/true));
  for (std::size_t i = 0; i < attention.names.size(); ++i) attention.expect_near(i, kRounded);
}

// Several warps with a head's keys; a ctest entry runs it with the emulated threads in both orders. There, one of those that have
// seven warps for as many queries: all of them are tests/codegen's.
TEST(DeviceAttention, GradientsOfFewKeysRepeatTheirBits) {
  std::vector<AttentionCase> cases = short_attention_cases();
  std::erase_if(cases, [](const AttentionCase& c) {
    const bool again = c.label == "short_200" || c.label == "short_causal" || c.label == "short_sequence_first";
    return c.keys <= 32 || c.keys > 200 || c.queries > 200 || (again && !on_real_gpu());
  });
  AttentionInBf16 attention(cases);
  attention.run(open_device_under_test(/*use_libraries=*/false));
  for (std::size_t i = 3 * cases.size(); i < attention.names.size(); ++i) attention.expect_near(i, 2 * kRounded);
}

}  // namespace
}  // namespace gcomp::tests
