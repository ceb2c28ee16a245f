// Micro-batches on CUDA: PyTorch's losses, the same bits in whatever order the device works, and what a step costs in calls.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/files/npz.h"
#include "tests/cuda/cuda_run.h"
#include "tests/drive/recorded_cases.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;

std::string accumulation_fixture(const std::string& name) {
  return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name;
}

struct Shared {
  std::string model, loss;
  std::int64_t rows = 16, micro_batches = 4, steps = 50;
  std::vector<std::string> more = {};
};

class CudaAccumulation : public testing::Test {
 protected:
  CudaRun train(const Shared& what, const CudaSettings& settings = {}) {
    std::vector<std::string> arguments{"train",
                                       accumulation_fixture(what.model + ".onnx"),
                                       "--data",
                                       accumulation_fixture(what.model + ".npz"),
                                       "--loss",
                                       what.loss,
                                       "--batch",
                                       std::to_string(what.rows),
                                       "--micro-batches",
                                       std::to_string(what.micro_batches),
                                       "--steps",
                                       std::to_string(what.steps),
                                       "--no-shuffle",
                                       "--device",
                                       "cuda",
                                       "--metrics",
                                       folder_ / "m.jsonl",
                                       "--out",
                                       folder_ / "trained.onnx"};
    arguments.insert(arguments.end(), what.more.begin(), what.more.end());
    return folder_.run(arguments, settings);
  }
  /// The last run's are the first `steps` of these.
  void expect_losses(const Tensor& wanted, std::int64_t steps) {
    const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), steps);
    for (std::int64_t step = 0; step < steps; ++step)
      ASSERT_NEAR(losses[static_cast<std::size_t>(step)], wanted.at(step), 1e-9 * wanted.at(step)) << "step " << step + 1;
  }

  CudaFolder folder_;
};

/// From the third step on nothing allocates and nothing waits within a step, whose runs are all graphs.
void expect_no_wait(const CudaRun& run, std::int64_t steps, std::int64_t launches) {
  EXPECT_EQ(run.count("cuGraphLaunch"), steps * launches);
  const json& intervals = run.driver.at("intervals");
  constexpr std::size_t kFirst = 3;
  std::int64_t seen = 0;
  for (std::size_t i = kFirst * static_cast<std::size_t>(launches); i < intervals.size(); ++i) {
    const json& counts = intervals[i].at("counts");
    seen += counts.value("cuGraphLaunch", 0);
    for (const char* none :
         {"synchronising", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuModuleLoadDataEx",
          "cuLaunchKernel", "cuEventCreate", "cuStreamCreate", "cuGraphInstantiateWithFlags"})
      EXPECT_EQ(counts.value(none, 0), 0) << "interval " << i << ": " << none;
  }
  EXPECT_GT(seen, 0);
}

TEST_F(CudaAccumulation, LossesFollowTheRecord) {
  int runs = 0;
  const std::map<std::string, Tensor> record = load_arrays(accumulation_fixture("accumulation.npz"));
  for (const auto& [number, recorded] : recorded_cases(record)) {
    const bool batch_norm = recorded.at("model") == "bn" && recorded.at("micro_batches") == json({4});
    const bool weights = recorded.at("model") == "mlp" && recorded.at("rows") == 30;  // in five: no power of two
    if (!batch_norm && !weights) continue;
    Shared what{.model = recorded.at("model"), .loss = recorded.at("loss"), .rows = recorded.at("rows")};
    what.micro_batches = weights ? 5 : 4;
    what.more = {"--precision", "f64", "--optimizer", recorded.at("optimizer")};
    if (batch_norm) what.more.insert(what.more.end(), {"--batchnorm-variance", "unbiased"});
    for (const json& flag : recorded.at("flags")) what.more.push_back(flag);
    const CudaRun run = train(what);
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    ++runs;
    ASSERT_NO_FATAL_FAILURE(expect_losses(record.at(number), what.steps)) << recorded;
    if (on_real_device()) continue;
    EXPECT_EQ(leaks(run), (std::map<std::string, std::int64_t>()));
    expect_no_wait(run, what.steps, 3 * what.micro_batches + 1);  // counts, shards, sums, and the rest once
  }
  EXPECT_EQ(runs, 2);
}

/// Of all micro-batches at once: PyTorch's losses of the batch that nobody cuts, and three graphs a step beside the counts.
TEST_F(CudaAccumulation, StatisticsOfTheBatchFollowTheRecordOfTheBatch) {
  int runs = 0;
  const std::map<std::string, Tensor> record = load_arrays(accumulation_fixture("accumulation.npz"));
  for (const auto& [number, recorded] : recorded_cases(record)) {
    if (recorded.at("model") != "bn" || recorded.at("micro_batches") != json({1})) continue;
    ++runs;
    Shared what{.model = "bn", .loss = recorded.at("loss"), .rows = recorded.at("rows"), .steps = 10};
    what.more = {"--precision",          "f64",      "--optimizer",     recorded.at("optimizer"),
                 "--batchnorm-variance", "unbiased", "--sync-batchnorm"};
    for (const json& flag : recorded.at("flags")) what.more.push_back(flag);
    const CudaRun run = train(what);
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    ASSERT_NO_FATAL_FAILURE(expect_losses(record.at(number), what.steps)) << recorded;
    if (on_real_device()) continue;
    EXPECT_EQ(leaks(run), (std::map<std::string, std::int64_t>()));
    expect_no_wait(run, what.steps, what.micro_batches + 3);  // counts; all shards, their sums, and the rest once
  }
  EXPECT_EQ(runs, 1);
}

TEST_F(CudaAccumulation, GivesTheSameBitsInWhateverOrderTheDeviceWorks) {
  const Shared what{.model = "cnn",
                    .loss = "cross_entropy(weight=[0.5, 2, 1.25])",
                    .micro_batches = 8,
                    .steps = 4,
                    .more = {"--clip-norm", "0.3", "--ema", "0.9"}};
  const auto bits = [&](const CudaSettings& settings) {
    const CudaRun run = train(what, settings);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return contents(folder_ / "m.jsonl") + contents(folder_ / "trained.onnx");
  };
  const std::string usual = bits({});
  EXPECT_TRUE(bits({}) == usual) << "a second run";
  if (on_real_device()) return;
  EXPECT_TRUE(bits({.emulated = {{"ORDER", "delayed"}}, .environment = {}}) == usual) << "delayed streams";
  EXPECT_TRUE(bits({.emulated = {{"POISON", "165"}}, .environment = {}}) == usual) << "other content of fresh memory";
}

/// Dropped is what a whole batch drops on the CPU (tests/train/test_accumulation.cpp).
TEST_F(CudaAccumulation, DropsWhatTheWholeBatchDropsOnTheCpu) {
  const auto losses = [&](std::int64_t micro_batches, const char* device) {
    std::vector<std::string> arguments{"train",           accumulation_fixture("dropout.onnx"),
                                       "--data",          accumulation_fixture("mlp.npz"),
                                       "--loss",          "cross_entropy(ignore_index=1)",
                                       "--batch",         "16",
                                       "--micro-batches", std::to_string(micro_batches),
                                       "--steps",         "6",
                                       "--seed",          "5",
                                       "--precision",     "f64",
                                       "--device",        device,
                                       "--metrics",       folder_ / "m.jsonl",
                                       "--out",           folder_ / "t.onnx"};
    const CudaRun run = folder_.run(arguments);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return step_losses(folder_ / "m.jsonl");
  };
  const std::vector<double> wanted = losses(1, "cpu"), found = losses(4, "cuda");
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-9 * wanted[i]) << "step " << i + 1;
}

/// Whichever shard of whichever step it is in.
TEST_F(CudaAccumulation, AnIndexOutOfRangeIsNamedByItsRow) {
  for (const std::int64_t row : {0, 5, 16 + 9, 2 * 16 + 15}) {
    std::map<std::string, Tensor> data = load_arrays(accumulation_fixture("transformer.npz"));
    data.at("x").set(row * 5 + 2, 50);
    runtime::write_npz(folder_ / "bad.npz", std::vector<runtime::NamedTensor>{{"x", data.at("x")}, {"label", data.at("label")}});
    const CudaRun run = folder_.run({"train", accumulation_fixture("transformer.onnx"), "--data", folder_ / "bad.npz", "--loss",
                                     "cross_entropy", "--batch", "16", "--micro-batches", "4", "--steps", "4", "--no-shuffle",
                                     "--device", "cuda", "--out", folder_ / "trained.onnx"});
    EXPECT_EQ(run.result.exit_code, 3) << run.result.errors;
    const std::string wanted = concat("array 'x', row ", row, ": index 50, wanted -11 to 10");
    EXPECT_NE(run.result.errors.find(wanted), std::string::npos) << "no '" << wanted << "' in: " << run.result.errors;
  }
}

TEST_F(CudaAccumulation, StepsThatAreCheckedOneByOneGiveTheSameBits) {
  Shared what{.model = "mlp", .loss = "cross_entropy(ignore_index=1)", .steps = 3};
  ASSERT_EQ(train(what).result.exit_code, 0);
  const std::string usual = contents(folder_ / "m.jsonl");
  what.more = {"--check-steps"};
  ASSERT_EQ(train(what).result.exit_code, 0);
  EXPECT_EQ(contents(folder_ / "m.jsonl"), usual);
}

/// With loss scaling and clipping: f16 strays from f32 as far as its roundoff.
TEST_F(CudaAccumulation, InFloat16FollowsFloat32) {
  Shared what{.model = "mlp", .loss = "cross_entropy(ignore_index=1)", .steps = 8, .more = {"--clip-norm", "0.3"}};
  ASSERT_EQ(train(what).result.exit_code, 0);
  const std::vector<double> wanted = step_losses(folder_ / "m.jsonl");
  what.more.insert(what.more.end(), {"--precision", "f16", "--loss-scale", "64"});
  const CudaRun run = train(what);
  ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
  EXPECT_EQ(contents(folder_ / "m.jsonl").find("\"skipped\":1"), std::string::npos);
  const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
  ASSERT_EQ(losses.size(), wanted.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 0x1p-9 * wanted[i]) << "step " << i + 1;
}

}  // namespace
}  // namespace gcomp::test
