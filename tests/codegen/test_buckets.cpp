// The kernels of bucket and unbucket on the CPU and on the emulator, against what the ops are defined as: arrays that end within a
// line and at one, empty ones, scalars, and some longer than a task; zeros between them, whatever the memory held before.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "codegen/bucket.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/validate.h"
#include "tests/codegen/cuda_shim/program_runner.h"
#include "tests/device_options.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

const std::vector<Shape> kBucketed{{3, 5}, {16}, {}, {0, 4}, {codegen::kBucketBlock + 7}, {64}, {2, codegen::kBucketBlock}};

/// Into a bucket of two rows with three parts of each array in a row, out of it, and into one of three rows with two.
struct Buckets {
  Graph graph{"buckets"};
  std::map<std::string, Tensor> values;
  std::vector<Tensor> expected;

  explicit Buckets(DType dtype) {
    std::mt19937 random(3);
    Builder b(graph);
    std::vector<Var> arrays;
    std::vector<TensorType> types;
    for (const Shape& shape : kBucketed) {
      const std::string name = concat("x", arrays.size());
      arrays.push_back(b.input({dtype, shape}, name));
      types.push_back(arrays.back().type());
      values.emplace(name, random_tensor(arrays.back().type(), 0, 2, random));
    }
    const Attributes parts{{"rows", std::int64_t{2}}, {"parts", std::int64_t{3}}};
    const Var bucket = b.apply(ops::kBucket, arrays, parts);
    const std::vector<Var> again =
        b.apply_many(ops::kUnbucket, {bucket}, {{"shapes", bucket_shapes(types)}, {"parts", std::int64_t{3}}});
    for (const Var& array : again) graph.add_output(array.value);
    graph.add_output(b.apply(ops::kBucket, again, {{"rows", std::int64_t{3}}, {"parts", std::int64_t{2}}}).value);
    expected = interpret(graph, values).outputs;
  }

  runtime::Program program(const runtime::Target& target) {
    const MemoryPlan plan = passes::lower(graph, {.target = codegen::target_info(target)});
    runtime::Program made = codegen::generate(graph, plan, target);
    runtime::validate(made);
    EXPECT_LE(made.steps.size(), 5u) << "two launches into each bucket, one out";
    return made;
  }
};

class BucketKernels : public testing::TestWithParam<DType> {};

TEST_P(BucketKernels, OnTheCpu) {
  Buckets buckets(GetParam());
  const runtime::Program program = buckets.program({});
  for (int threads : {1, 2}) {
    auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options(threads));
    auto executable = device->load(program, device->allocate_states());
    for (int turn = 0; turn < 2; ++turn) {
      for (const auto& [name, value] : buckets.values) executable->set_input(name, value);
      executable->run();
      for (std::size_t i = 0; i < buckets.expected.size(); ++i) EXPECT_EQ(executable->output(i), buckets.expected[i]) << i;
    }
  }
}

TEST_P(BucketKernels, OnTheEmulator) {
  Buckets buckets(GetParam());
  cuda_shim::ProgramRunner runner(buckets.program({runtime::TargetKind::cuda, "sm_90"}));
  for (const auto& [name, value] : buckets.values) runner.write(name, value);
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_EQ(runner.step(), "");
    for (std::size_t i = 0; i < buckets.expected.size(); ++i) EXPECT_EQ(runner.read_output(i), buckets.expected[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, BucketKernels,
                         testing::Values(DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::boolean),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace gcomp::tests
