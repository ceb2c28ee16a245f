// Convolutions and their gradients on a CUDA device against the interpreter: f32 as it is, and rounded to TF32 only where that is
// asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "runtime/validate.h"
#include "tests/device/device_under_test.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using ir::Builder;
using ir::Var;
using runtime::MatmulPrecision;
using Values = std::map<std::string, Tensor>;

/// A convolution of 3 x 3 with strides, its image's gradient and its weight's, channels last.
ir::Graph strided_convolution(std::int64_t groups) {
  ir::Graph graph("convolution");
  Builder b(graph);
  const auto input = [&](const char* name, const Shape& shape) { return b.input({DType::f32, shape}, name); };
  const Var x = input("x", {2, 9, 8, 16}), w = input("w", {24, 16 / groups, 3, 3}), dy = input("dy", {2, 5, 4, 24});
  const auto attributes = [&](const Shape& sizes) {
    ir::Attributes all{{"strides", Shape{2, 2}},   {"low", Shape{1, 1}}, {"high", Shape{1, 1}},
                       {"dilations", Shape{1, 1}}, {"groups", groups},   {"channels_last", true}};
    if (!sizes.empty()) all.set("sizes", sizes);
    return all;
  };
  graph.outputs() = {b.apply(ir::ops::kConvolution, {x, w}, attributes({})).value,
                     b.apply(ir::ops::kConvolutionInputGradient, {dy, w}, attributes({9, 8})).value,
                     b.apply(ir::ops::kConvolutionWeightGradient, {x, dy}, attributes({3, 3})).value};
  return graph;
}

Values draw(const ir::Graph& graph) {
  std::mt19937 random(3);
  Values values;
  for (const ir::Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
  return values;
}

/// 10 bits behind the point, halves away from zero.
Values rounded_to_tf32(Values values) {
  for (auto& [name, tensor] : values)
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      int exponent = 0;
      const double fraction = std::frexp(tensor.at(i), &exponent);
      tensor.set(i, std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11));
    }
  return values;
}

std::vector<Tensor> computed(const ir::Graph& original, const Values& values, bool use_libraries, MatmulPrecision precision) {
  const std::unique_ptr<runtime::Device> device = open_device_under_test(use_libraries, precision);
  ir::Graph graph = clone(original);
  passes::PipelineOptions options;
  options.target = codegen::target_info(device->target());
  const ir::MemoryPlan plan = passes::lower(graph, options);
  const runtime::Program program = codegen::generate(graph, plan, device->target());
  runtime::validate(program);
  const auto executable = device->load(program, device->allocate_states());
  for (const auto& [name, value] : values) executable->set_input(name, value);
  executable->run();
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < program.outputs.size(); ++i) results.push_back(executable->output(i));
  return results;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) largest = std::max(largest, std::abs(a.at(i) - b.at(i)));
  return largest;
}

constexpr double kTolerance = 3e-5;  // sums of up to 216 terms below 1

/// By cuDNN where it is there, or by generated kernels. Gives how many results are rounded where TF32 is asked for: that allows it,
/// and a library's favourite may be exact all the same, but nothing in between.
int count_rounded(std::int64_t groups, bool use_libraries) {
  const ir::Graph graph = strided_convolution(groups);
  const Values values = draw(graph);
  const std::vector<Tensor> exact = ir::interpret(graph, values).outputs;
  const std::vector<Tensor> rounded = ir::interpret(graph, rounded_to_tf32(values)).outputs;
  const std::vector<Tensor> strict = computed(graph, values, use_libraries, MatmulPrecision::strict);
  const std::vector<Tensor> fast = computed(graph, values, use_libraries, MatmulPrecision::tf32);
  int count = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_GT(largest_difference(rounded[i], exact[i]), 3 * kTolerance) << "result " << i << " cannot tell";
    EXPECT_LT(largest_difference(strict[i], exact[i]), kTolerance) << "result " << i;
    const double to_rounded = largest_difference(fast[i], rounded[i]), to_exact = largest_difference(fast[i], exact[i]);
    EXPECT_LT(std::min(to_rounded, to_exact), kTolerance) << "result " << i << " is neither rounded nor exact";
    count += to_rounded < to_exact;
  }
  return count;
}

constexpr int kResults = 3;

TEST(DeviceConvolutions, AreRoundedToTf32WhereThatIsAskedFor) { EXPECT_EQ(count_rounded(1, false), kResults); }

TEST(DeviceConvolutions, OfCudnnMayBeRoundedToTf32WhereThatIsAskedFor) {
  const int rounded = count_rounded(1, true);
  if (!on_real_gpu()) { EXPECT_EQ(rounded, kResults); }
}

// As on an H200 with cuDNN 9.19, whose favourite for two of these three is exact.
TEST(DeviceConvolutions, OfCudnnNeedNotBeRoundedToTf32) {
  if (on_real_gpu()) GTEST_SKIP() << "which engine is the favourite is the library's choice";
  setenv("GCOMP_EMULATED_CUDNN_ENGINES", "3", 1);
  EXPECT_EQ(count_rounded(1, true), 0);
  unsetenv("GCOMP_EMULATED_CUDNN_ENGINES");
}

TEST(DeviceConvolutions, OfCudnnInGroups) {
  if (!on_real_gpu()) {
    EXPECT_EQ(count_rounded(2, true), kResults);
    return;
  }
  // Which engines take groups, and whether they round, is the library's choice.
  const ir::Graph graph = strided_convolution(2);
  const Values values = draw(graph);
  const std::vector<Tensor> exact = ir::interpret(graph, values).outputs;
  const std::vector<Tensor> strict = computed(graph, values, true, MatmulPrecision::strict);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_LT(largest_difference(strict[i], exact[i]), kTolerance) << "result " << i;
}

}  // namespace
}  // namespace gcomp::tests
