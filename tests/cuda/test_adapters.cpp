// Low-rank adapters on CUDA: PEFT's record (tests/fixtures/training/record_lora.py), one graph launch a step, equal bits.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

using nlohmann::json;

constexpr std::int64_t kAdapterSteps = 8, kRecordedSteps = 50;

class CudaAdapters : public testing::TestWithParam<const char*> {
 protected:
  static std::string fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }
  /// The recorded case of that number.
  CudaRun train(std::size_t number, const std::string& precision) const {
    const std::string model = GetParam();
    const Tensor bytes = load_arrays(fixture("lora.npz")).at(model + ".cases");
    std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
    std::string line;
    for (std::size_t i = 0; i <= number; ++i) std::getline(lines, line);
    std::vector<std::string> arguments{"train",       fixture(model + ".onnx"),
                                       "--data",      fixture(model + ".npz"),
                                       "--loss",      "cross_entropy",
                                       "--batch",     "6",
                                       "--steps",     std::to_string(kAdapterSteps),
                                       "--precision", precision,
                                       "--device",    "cuda",
                                       "--metrics",   folder_ / "m.jsonl",
                                       "--out",       folder_ / "t.onnx",
                                       "--no-shuffle"};
    for (std::string flag : json::parse(line).get<std::vector<std::string>>())
      arguments.push_back(flag.starts_with("lora/") ? fixture(flag) : flag);
    return folder_.run(arguments);
  }

  CudaFolder folder_;
};

TEST_P(CudaAdapters, TrainAsPeftDoes) {
  const Tensor recorded = load_arrays(fixture("lora.npz")).at(GetParam());
  for (std::int64_t number = 0; number < 4; ++number) {
    const CudaRun run = train(static_cast<std::size_t>(number), "f64");
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    if (!on_real_device()) { EXPECT_EQ(run.count("cuGraphLaunch"), kAdapterSteps); }
    const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), kAdapterSteps);
    for (std::int64_t i = 0; i < kAdapterSteps; ++i) {
      const double wanted = recorded.at(number * kRecordedSteps + i);
      EXPECT_NEAR(losses[static_cast<std::size_t>(i)], wanted, 1e-9 * wanted) << "case " << number << ", step " << i + 1;
    }
  }
}

TEST_P(CudaAdapters, TwoRunsGiveTheSameBytes) {
  std::vector<std::string> written;
  for (int turn = 0; turn < 2; ++turn) {
    const CudaRun run = train(2, "f32");
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    written.push_back(runtime::test::contents(folder_ / "t.onnx"));
  }
  EXPECT_TRUE(written[0] == written[1]);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaAdapters, testing::Values("mlp", "cnn", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gcomp::test
