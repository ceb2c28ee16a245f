// The kernels of square_sums on the CPU and on the emulator, against sums in long double: arrays of one element, of less than a
// block, of whole blocks, of more, and scalars.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/square_sums.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/validate.h"
#include "tests/codegen/cuda_shim/program_runner.h"
#include "tests/device_options.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

const std::vector<Shape> kShapes{{1}, {7}, {kSquareSumBlock}, {3, kSquareSumBlock + 5}, {}, {9 * kSquareSumBlock + 1}};

struct SquareSums {
  Graph graph{"sums"};
  std::map<std::string, Tensor> values;
  std::vector<double> expected;

  explicit SquareSums(DType dtype, std::int64_t parts = 1) {
    std::mt19937 random(5);
    Builder b(graph);
    std::vector<Var> arrays;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      arrays.push_back(b.input({dtype, kShapes[i]}, concat("x", i)));
      const Tensor value = random_tensor(arrays.back().type(), -3, 3, random);
      values.emplace(concat("x", i), value);
    }
    graph.add_output(b.apply(ops::kSquareSums, std::move(arrays), {{"parts", parts}}).value);
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::size_t i = 0; i < kShapes.size(); ++i) add_expected(values.at(concat("x", i)), part, parts);
  }

  /// The sums of one part of an array, zeros behind its end.
  void add_expected(const Tensor& value, std::int64_t part, std::int64_t parts) {
    const std::int64_t longest = square_sum_part(value.elements(), parts), end = std::min((part + 1) * longest, value.elements());
    for (std::int64_t block = 0; block < square_sums_of(longest); ++block) {
      long double sum = 0;
      const std::int64_t first = part * longest + block * kSquareSumBlock, last = std::min(first + kSquareSumBlock, end);
      for (std::int64_t k = first; k < last; ++k) sum += static_cast<long double>(value.at(k)) * value.at(k);
      expected.push_back(static_cast<double>(sum));
    }
  }

  runtime::Program program(const runtime::Target& target) {
    const MemoryPlan plan = passes::lower(graph, {.target = codegen::target_info(target)});
    runtime::Program made = codegen::generate(graph, plan, target);
    runtime::validate(made);
    EXPECT_EQ(made.steps.size(), 1u) << "one launch for all arrays";
    return made;
  }

  void check(const Tensor& found) const {
    ASSERT_EQ(found.type(), (TensorType{DType::f64, {static_cast<std::int64_t>(expected.size())}}));
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found.at(static_cast<std::int64_t>(i)), expected[i], 1e-13 * expected[i]) << "sum " << i;
  }
};

class SquareSumKernels : public testing::TestWithParam<DType> {};

TEST_P(SquareSumKernels, OnTheCpu) {
  SquareSums sums(GetParam());
  const runtime::Program program = sums.program({});
  std::optional<Tensor> of_one_thread;
  for (int threads : {1, 2}) {
    auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options(threads));
    auto executable = device->load(program, device->allocate_states());
    for (const auto& [name, value] : sums.values) executable->set_input(name, value);
    executable->run();
    sums.check(executable->output(0));
    if (of_one_thread) { EXPECT_EQ(executable->output(0), *of_one_thread); }
    of_one_thread = executable->output(0);
  }
}

TEST_P(SquareSumKernels, OnTheEmulator) {
  SquareSums sums(GetParam());
  cuda_shim::ProgramRunner runner(sums.program({runtime::TargetKind::cuda, "sm_90"}));
  for (const auto& [name, value] : sums.values) runner.write(name, value);
  ASSERT_EQ(runner.step(), "");
  sums.check(runner.read_output(0));
}

/// What a rank holds of arrays, zeros behind their ends, has the sums that those parts of the whole have.
TEST_P(SquareSumKernels, InPartsOnBoth) {
  SquareSums sums(GetParam(), 8);
  const runtime::Program program = sums.program({});
  auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options(2));
  auto executable = device->load(program, device->allocate_states());
  for (const auto& [name, value] : sums.values) executable->set_input(name, value);
  executable->run();
  sums.check(executable->output(0));
  SquareSums again(GetParam(), 8);
  cuda_shim::ProgramRunner runner(again.program({runtime::TargetKind::cuda, "sm_90"}));
  for (const auto& [name, value] : again.values) runner.write(name, value);
  ASSERT_EQ(runner.step(), "");
  again.check(runner.read_output(0));
}

TEST_P(SquareSumKernels, WhatIsNotFiniteGoesThrough) {
  SquareSums sums(GetParam());
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    Tensor& array = sums.values.at("x3");
    array.set(array.elements() - 1, bad);
    SquareSums fresh(GetParam());
    cuda_shim::ProgramRunner runner(fresh.program({runtime::TargetKind::cuda, "sm_90"}));
    for (const auto& [name, value] : sums.values) runner.write(name, value);
    ASSERT_EQ(runner.step(), "");
    double sum = 0;
    for (double x : runner.read_output(0).to_doubles()) sum += x;
    EXPECT_FALSE(std::isfinite(sum));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SquareSumKernels, testing::Values(DType::f32, DType::f64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace gcomp::tests
