// An NVRTC that never returns from a kernel: it cannot be stopped, so what waits for it gives up and the process ends.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

class HangingNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "only the emulated NVRTC can hang";
  }
  /// NVRTC hangs, and where there is a signal, that is sent then.
  CudaSettings settings(int signal = 0) const {
    const std::string hanging = folder_ / "hanging";
    CudaSettings settings{.emulated = {{"NVRTC_HANGS", hanging}}};
    if (signal != 0)
      settings.limits = "(while [ ! -e '" + hanging + "' ]; do sleep 0.02; done; kill -" + std::to_string(signal) +
                        " $$) > /dev/null 2>&1 & true";
    return settings;
  }

  const CudaFolder folder_{};
  const RecordedModel model_ = recorded_model("mlp");
};

TEST_F(HangingNvrtc, ASignalEndsTheTrainingThatWaitsForIt) {
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove(folder_ / "hanging");
    const CommandResult result = folder_.train(model_, 3, settings(signal)).result;
    EXPECT_EQ(result.exit_code, 128 + signal) << result.errors;
    EXPECT_NE(result.errors.find("before the first step"), std::string::npos) << result.errors;
    EXPECT_FALSE(fs::exists(folder_ / "trained.onnx"));
  }
}

TEST_F(HangingNvrtc, ASignalEndsOtherCommands) {
  const CudaRun run =
      folder_.run({"run", model_.model(), "--device", "cuda", "--inputs", model_.data(), "--outputs", (folder_ / "y.npz").string()},
                  settings(SIGTERM));
  EXPECT_EQ(run.result.exit_code, 143) << run.result.errors;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".gcomp")) << entry.path();
}

TEST_F(HangingNvrtc, ItsTimeIsLimited) {
  const CommandResult result = folder_.train(model_, 3, settings(), {"--compiler-timeout", "0.2"}).result;
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kernel_compile)) << result.errors;
  EXPECT_NE(result.errors.find("NVRTC took more than 0.2 s on kernel k"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("--compiler-timeout"), std::string::npos) << result.errors;
}

TEST_F(HangingNvrtc, VerboseShowsItsOptions) {
  const CommandResult result = folder_.train(model_, 1, {}, {"-v"}).result;
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("--std=c++17 --fmad=true --gpu-architecture=sm_"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace gcomp::test
