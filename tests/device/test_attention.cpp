// Attention of f32 and its gradients on a CUDA device, rounded to TF32 where that is asked for, against the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "codegen/generate.h"
#include "ir/interpret.h"
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

}  // namespace
}  // namespace gcomp::tests
