// Numbers below 2^-126 on the CPU: zeros to products, attention and an optimizer's moments, which an Intel Xeon multiplied fifty
// times as slowly; to all other kernels what IEEE says, against the C library.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "codegen/generate.h"
#include "ir/text/parse.h"
#include "passes/memory/plan_memory.h"
#include "runtime/device.h"
#include "tests/device_options.h"

namespace gcomp::tests {
namespace {

constexpr char kGraph[] = R"(graph @tiny(%a: f32[40,64], %b: f32[64,48], %x: f32[5000]) -> (%product, %exp, %log) {
  state %m: f32[5000] optimizer
  state %w: f32[5000] parameter
  %product = matmul %a, %b
  %exp = exp %x
  %log = log %exp
  %half = full {dtype=f32, shape=[5000], value=0.5}
  %decayed = mul %m, %half
  %halved = mul %w, %half
  update %m, %decayed
  update %w, %halved
}
)";

class Subnormals : public testing::TestWithParam<int> {
 protected:
  Subnormals() {
    graph_ = ir::parse(kGraph);
    program_ = codegen::generate(graph_, passes::plan_memory(graph_), {});
    device_ = runtime::open_device(runtime::TargetKind::cpu, test::device_options(GetParam()));
    states_ = device_->allocate_states();
    executable_ = device_->load(program_, states_);
  }
  /// Outputs, with all elements of each input the same.
  std::vector<Tensor> run(double a, double b, double x) {
    executable_->set_input("a", filled({40, 64}, a));
    executable_->set_input("b", filled({64, 48}, b));
    executable_->set_input("x", filled({5000}, x));
    executable_->run();
    return {executable_->output(0), executable_->output(1), executable_->output(2)};
  }
  static Tensor filled(const Shape& shape, double value) {
    return Tensor::of(DType::f32, shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)), value));
  }
  static void expect_all(const Tensor& tensor, double value, double tolerance = 0) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) ASSERT_NEAR(tensor.at(i), value, tolerance) << i;
  }

  ir::Graph graph_{"tiny"};
  runtime::Program program_;
  std::unique_ptr<runtime::Device> device_;
  std::shared_ptr<runtime::StateMemory> states_;
  std::unique_ptr<runtime::Executable> executable_;
};

TEST_P(Subnormals, AreZerosToProducts) {
  states_->write("m", filled({5000}, 1));
  states_->write("w", filled({5000}, 1));
  expect_all(run(0x1p-10, 0x1p-116, 0)[0], 0x1p-120);  // the least products are normal numbers
  expect_all(run(0x1p-130, 0x1p+20, 0)[0], 0);         // an operand is none
  expect_all(run(0x1p-80, 0x1p-60, 0)[0], 0);          // no result is one
  expect_all(run(0x1p-80, 0x1p-46, 0)[0], 0x1p-120);
}

TEST_P(Subnormals, AreKeptByFunctions) {
  states_->write("m", filled({5000}, 1));
  states_->write("w", filled({5000}, 1));
  const std::vector<Tensor> outputs = run(1, 1, -95);
  const float wanted = std::exp(-95.0F);
  ASSERT_LT(wanted, 0x1p-126F);
  ASSERT_GT(wanted, 0);
  expect_all(outputs[1], wanted, 4 * 0x1p-149);
  expect_all(outputs[2], -95, 0.01);
}

TEST_P(Subnormals, AreZerosToMomentsAndNotToParameters) {
  states_->write("m", filled({5000}, 0x1p-140));
  states_->write("w", filled({5000}, 0x1p-140));
  run(1, 1, 0);
  expect_all(states_->read("m"), 0);
  expect_all(states_->read("w"), 0x1p-141);
  states_->write("m", filled({5000}, 0x1p-125));
  run(1, 1, 0);
  expect_all(states_->read("m"), 0x1p-126);
}

INSTANTIATE_TEST_SUITE_P(Threads, Subnormals, testing::Values(1, 2));

}  // namespace
}  // namespace gcomp::tests
