// Random graphs, forward and gradient: the interpreter on the graph as drawn is the reference for every pipeline of passes and for
// the compiled CPU program, and finite differences are the reference for the gradients.
#include <gtest/gtest.h>

#include <random>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/interpret.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/validate.h"
#include "tests/device_options.h"
#include "tests/fuzz/expect_equal.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/seeds.h"

namespace gcomp::tests {
namespace {

class RandomGraphs : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    drawn_ = random_graph(static_cast<std::uint64_t>(GetParam()), DType::f64);
    append_gradients(drawn_.graph);
    expected_ = ir::interpret(drawn_.graph, drawn_.values).outputs;
  }

  void TearDown() override {
    if (HasFailure())
      std::printf("%s\n", ir::print(random_graph(static_cast<std::uint64_t>(GetParam()), DType::f64).graph).c_str());
  }

  /// A copy, by way of the text.
  ir::Graph copy() const { return ir::parse(ir::print(drawn_.graph)); }

  void expect_equal(std::span<const Tensor> found, double tolerance, const std::string& what) const {
    tests::expect_equal(found, expected_, tolerance, what);
  }

  RandomGraph drawn_;
  std::vector<Tensor> expected_;
};

// The derivative of the loss along a random direction, from the gradients and from two more values of the loss.
TEST_P(RandomGraphs, GradientsAreTheLosssSlope) {
  const RandomGraph forward = random_graph(static_cast<std::uint64_t>(GetParam()), DType::f64);
  const std::size_t inputs = drawn_.graph.inputs().size(), first = expected_.size() - inputs;
  std::mt19937_64 random(99);
  for (int direction = 0; direction < 3; ++direction) {
    auto above = forward.values, below = forward.values;
    constexpr double kStep = 1e-6;
    double slope = 0, size = 0;
    for (std::size_t i = 0; i < inputs; ++i) {
      const std::string& name = drawn_.graph.inputs()[i]->name;
      for (std::int64_t j = 0; j < above.at(name).elements(); ++j) {
        const double along = static_cast<double>(random() >> 11) * 0x1p-52 - 1, value = above.at(name).at(j);
        above.at(name).set(j, value + kStep * along);
        below.at(name).set(j, value - kStep * along);
        slope += along * expected_[first + i].at(j);
        size += std::abs(along * expected_[first + i].at(j));
      }
    }
    const double high = ir::interpret(forward.graph, above).outputs[0].at(0),
                 low = ir::interpret(forward.graph, below).outputs[0].at(0);
    EXPECT_NEAR(slope, (high - low) / (2 * kStep), 1e-6 * (1 + size)) << "direction " << direction;
  }
}

TEST_P(RandomGraphs, NoPassChangesAValue) {
  std::vector<std::vector<std::string>> disabled = {{}};
  for (const passes::Pass& pass : passes::pipeline())
    if (pass.required.empty() && pass.stage == passes::Stage::lowering) disabled.push_back({std::string(pass.name)});
  for (const char* target : {"cpu", "cuda:sm_90"}) {
    for (const std::vector<std::string>& without : disabled) {
      ir::Graph graph = copy();
      passes::PipelineOptions options;
      options.disabled = without;
      options.target = codegen::target_info(runtime::parse_target(target));
      passes::lower(graph, options);
      expect_equal(ir::interpret(graph, drawn_.values).outputs, 1e-9,
                   concat(target, without.empty() ? ", all passes" : ", without " + without[0]));
    }
  }
}

TEST_P(RandomGraphs, CpuProgramComputesTheSame) {
  for (const bool fused : {true, false}) {
    ir::Graph graph = copy();
    passes::PipelineOptions options;
    options.target = codegen::target_info({});
    if (!fused) options.disabled = {"simplify", "choose_layout", "split_reductions", "order"};
    const ir::MemoryPlan plan = passes::lower(graph, options);
    const runtime::Program program = codegen::generate(graph, plan, {});
    ASSERT_NO_THROW(runtime::validate(program));
    std::vector<std::byte> binary;
    std::vector<Tensor> of_one_thread;
    for (const int threads : {1, 2}) {
      const auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options(threads));
      const auto executable = device->load(program, device->allocate_states(), binary);
      binary.assign(executable->kernel_binary().begin(), executable->kernel_binary().end());
      for (const ir::Value* input : graph.inputs()) executable->set_input(input->name, drawn_.values.at(input->name));
      executable->run();
      executable->run();
      std::vector<Tensor> found;
      for (std::size_t i = 0; i < expected_.size(); ++i) found.push_back(executable->output(i));
      expect_equal(found, 1e-9, fused ? "all passes" : "few passes");
      if (threads == 1) of_one_thread = found;
      else EXPECT_TRUE(found == of_one_thread) << "the number of threads changes bits";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(seeds(40).first, seeds(40).first + seeds(40).count),
                         [](const auto& info) { return "seed_" + std::to_string(info.param); });

}  // namespace
}  // namespace gcomp::tests
