// Runs on a GPU, where the loss of a step is read while the next one is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ir/base/error.h"
#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

class CudaRuns : public testing::Test {
 protected:
  void train(const std::string& run, const std::vector<std::string>& more) {
    const RecordedModel model = recorded_model("mlp");
    std::vector<std::string> options{"--run-dir", folder_ / run, "--eval-data",         model.data(),    "--eval-every",
                                     "3",         "--schedule",  "plateau(patience=0)", "--skip-spikes", "3"};
    options.insert(options.end(), more.begin(), more.end());
    const CudaRun done = folder_.train(model, 6, {}, options);
    ASSERT_EQ(done.result.exit_code, 0) << done.result.errors;
  }
  std::vector<double> losses(const std::string& run) const { return step_losses(folder_ / run / "metrics.jsonl"); }

  CudaFolder folder_;
};

/// With no time at all a process does one step.
TEST_F(CudaRuns, OneStepAProcessIsOneRun) {
  ASSERT_NO_FATAL_FAILURE(train("whole", {}));
  for (int process = 0; process < 6; ++process)
    ASSERT_NO_FATAL_FAILURE(train("parts", {"--resume", "--max-time", "0.000001s"})) << process;
  EXPECT_EQ(losses("whole").size(), 6u);
  EXPECT_EQ(losses("parts"), losses("whole"));
  EXPECT_EQ(contents(folder_ / "parts" / "last.onnx"), contents(folder_ / "whole" / "last.onnx"));
}

/// Steps of 32, 32 and 6 rows: the losses of the smaller one are those that the CPU finds.
TEST_F(CudaRuns, LastRowsAreASmallerStep) {
  const RecordedModel model = recorded_model("mlp");
  write_batch(model, 70, folder_ / "rows.npz");
  const auto losses_on = [&](const std::string& device) {
    const CudaRun run = folder_.run(
        {"train", model.model(),     "--data", folder_ / "rows.npz", "--loss", "bce",      "--batch", "32",        "--epochs",
         "2",     "--drop-last",     "false",  "--precision",        "f64",    "--device", device,    "--metrics", folder_ / device,
         "--out", folder_ / "t.onnx"});
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return step_losses(folder_ / device);
  };
  const std::vector<double> on_gpu = losses_on("cuda"), on_cpu = losses_on("cpu");
  ASSERT_EQ(on_gpu.size(), 6u);
  for (std::size_t step = 0; step < on_gpu.size(); ++step) EXPECT_NEAR(on_gpu[step], on_cpu[step], 1e-12) << step;
}

/// The third step's image is damaged, which is found while the second is under way: two steps are kept.
TEST_F(CudaRuns, AnErrorKeepsTheStepThatIsUnderWay) {
  const std::string digits = std::string(GCOMP_SOURCE_DIR) + "/examples/digits/", images = folder_ / "images";
  ASSERT_EQ(folder_.run({"data", "convert", digits + "test.npz", "-o", images, "--to", "images"}).result.exit_code, 0);
  const auto run = [&](const std::string& name, const std::string& steps) {
    return folder_.run({"train", digits + "digits.onnx", "--data", images, "--loss", "cross_entropy", "--batch", "16", "--steps",
                        steps, "--no-shuffle", "--device", "cuda", "--run-dir", folder_ / name});
  };
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(images))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  std::filesystem::resize_file(files.at(40), 50);
  const CudaRun two = run("two", "2"), four = run("four", "4");
  ASSERT_EQ(two.result.exit_code, 0) << two.result.errors;
  EXPECT_EQ(four.result.exit_code, 3) << four.result.errors;
  EXPECT_NE(four.result.errors.find("an error ends the run after step 2 of 4"), std::string::npos) << four.result.errors;
  EXPECT_TRUE(contents(folder_ / "four" / "last.onnx") == contents(folder_ / "two" / "last.onnx"));
  EXPECT_EQ(losses("four"), losses("two"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "four" / "checkpoints" / "step-00000002"));
}

/// Workers write pinned memory that the copies to the GPU read, also while two steps are under way.
TEST_F(CudaRuns, WorkersFeedTheSame) {
  const RecordedModel model = recorded_model("mlp");
  write_batch(model, 70, folder_ / "rows.npz");
  for (const char* parts : {"1", "2"}) {
    std::string wanted;
    for (const char* workers : {"0", "1", "3"}) {
      const std::string run = folder_ / concat(parts, "-", workers);
      const CudaRun done = folder_.run({"train",           model.model(),
                                        "--data",          folder_ / "rows.npz",
                                        "--loss",          "bce",
                                        "--batch",         "8",
                                        "--epochs",        "3",
                                        "--drop-last",     "false",
                                        "--micro-batches", parts,
                                        "--workers",       workers,
                                        "--prefetch",      "2",
                                        "--device",        "cuda",
                                        "--run-dir",       run});
      ASSERT_EQ(done.result.exit_code, 0) << done.result.errors;
      const std::string trained = contents(run + "/last.onnx");
      if (wanted.empty()) wanted = trained;
      EXPECT_TRUE(trained == wanted) << parts << " parts, " << workers << " workers";
    }
  }
}

/// Which libraries compute decides bits, so an artifact goes on without those that its training was to do without.
TEST_F(CudaRuns, AnArtifactGoesOnWithoutTheLibrariesItDidWithout) {
  const RecordedModel model = recorded_model("mnist_cnn");
  const auto train = [&](const std::string& from, const std::string& steps, const std::string& to, std::vector<std::string> more) {
    std::vector<std::string> words{"train", from, "--data", model.data(), "--steps", steps, "--no-shuffle", "--out", folder_ / to};
    words.insert(words.end(), more.begin(), more.end());
    const CudaRun run = folder_.run(words);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return run;
  };
  for (const std::string without : {"--no-cudnn", "--no-cublaslt"}) {
    std::vector<std::string> options = recipe_of(model).train_options;
    options.insert(options.end(), {"--device", "cuda", without});
    train(model.model(), "4", "whole.onnx", options);
    train(model.model(), "2", "half.gcx", options);
    const CudaRun rest = train(folder_ / "half.gcx", "2", "rest.onnx", {});
    EXPECT_NE(rest.result.errors.find("was made with " + without + ", and goes on so"), std::string::npos) << rest.result.errors;
    EXPECT_TRUE(contents(folder_ / "rest.onnx") == contents(folder_ / "whole.onnx")) << without;
  }
}

TEST_F(CudaRuns, AnArtifactForANewerGpuIsRefused) {
  if (on_real_device()) GTEST_SKIP() << "the emulated GPU alone is of any generation";
  const RecordedModel model = recorded_model("mlp");
  const CudaRun made = folder_.run({"compile", model.model(), "--train", "--loss", "cross_entropy", "--optimizer", "sgd", "--batch",
                                    "8", "--target", "cuda:sm_90", "-o", folder_ / "m.gcx"});
  ASSERT_EQ(made.result.exit_code, 0) << made.result.errors;
  const CudaRun run = folder_.run({"train", folder_ / "m.gcx", "--data", model.data(), "--steps", "1", "--out", folder_ / "t.onnx"},
                                  {.emulated = {{"COMPUTE", "7.5"}}});
  EXPECT_EQ(run.result.exit_code, 6) << run.result.errors;
  EXPECT_NE(run.result.errors.find("was compiled for sm_90"), std::string::npos) << run.result.errors;
  EXPECT_NE(run.result.errors.find("--target cuda:sm_75"), std::string::npos) << run.result.errors;
}

}  // namespace
}  // namespace gcomp::test
