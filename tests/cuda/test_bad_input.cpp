// What can be wrong with a machine's driver, libraries, GPU, memory, caches and artifacts: one clear message and the right exit
// code each, and never a silent run on the CPU.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "ir/base/error.h"
#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::put;

constexpr std::int64_t kRefusedSteps = 2;

class CudaBadInput : public testing::Test {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "only the emulated libraries can be spoilt";
    put(folder_ / "trained.onnx", "old contents");
  }

  CudaRun train_with(const CudaSettings& settings) { return folder_.train(model_, kRefusedSteps, settings); }
  CudaRun train(std::map<std::string, std::string> emulated, const std::vector<std::string>& more = {}) {
    return folder_.train(model_, kRefusedSteps, {.emulated = std::move(emulated), .environment = {}}, more);
  }

  void expect_refused(const CudaRun& run, ExitCode code, const std::vector<std::string>& parts) {
    const CommandResult& result = run.result;
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.errors;
    for (const std::string& part : parts)
      EXPECT_NE(result.errors.find(part), std::string::npos) << part << " in: " << result.errors;
    EXPECT_EQ(result.errors.find("internal error"), std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.find("step 1/"), std::string::npos) << "it trained, on something: " << result.errors;
    EXPECT_TRUE(contents(folder_ / "trained.onnx") == "old contents");
  }
  void expect_trained(const CudaRun& run, const std::vector<std::string>& parts = {}) {
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_NE(run.result.errors.find("device: cuda:0"), std::string::npos) << run.result.errors;
    for (const std::string& part : parts)
      EXPECT_NE(run.result.errors.find(part), std::string::npos) << part << " in: " << run.result.errors;
  }

  /// A folder with some of the emulated libraries, for LD_LIBRARY_PATH.
  CudaSettings with_libraries(const std::vector<std::string>& files) {
    const fs::path folder = folder_ / "libraries";
    fs::create_directories(folder);
    for (const std::string& file : files) fs::create_symlink(fs::path(GCOMP_EMULATED_LIBRARIES) / file, folder / file);
    return {.emulated = {}, .environment = {"LD_LIBRARY_PATH=" + folder.string()}};
  }

  std::vector<fs::path> cache_entries() {
    std::vector<fs::path> entries;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "cache"))
      if (entry.is_regular_file() && entry.path().extension() == ".entry") entries.push_back(entry.path());
    return entries;
  }

  const RecordedModel model_ = recorded_model("mlp");
  CudaFolder folder_;
};

bool machine_has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver) dlclose(driver);
  return driver != nullptr;
}

TEST_F(CudaBadInput, NoDriver) {
  if (machine_has_driver()) GTEST_SKIP() << "this machine has a CUDA driver";
  expect_refused(train_with(with_libraries({"libnvrtc.so.13", "libcublasLt.so.13"})), ExitCode::no_device,
                 {"libcuda.so.1", "install the NVIDIA driver", "--device cpu"});
}

TEST_F(CudaBadInput, AnOldDriver) {
  expect_refused(train({{"DRIVER", "11.4"}}), ExitCode::no_device, {"11.4", "12.0", "update the NVIDIA driver"});
  expect_refused(train({{"DRIVER", "12.4"}}), ExitCode::no_device, {"too old", "13.0", "update the driver"});
  expect_trained(train({{"DRIVER", "12.4"}, {"NVRTC", "12.4"}, {"CUBLASLT", "12.4"}}));
  expect_trained(train({{"DRIVER", "12.2"}, {"NVRTC", "12.4"}, {"CUBLASLT", "12.4"}}));  // loads no module within a capture
}

TEST_F(CudaBadInput, TheToolkitsStubInPlaceOfADriver) {
  expect_refused(train({{"FAIL", "cuInit:1:34"}}), ExitCode::no_device, {"stub"});
}

TEST_F(CudaBadInput, NoCublas) {
  const CudaSettings without = with_libraries({"libcuda.so.1", "libnvrtc.so.13"});
  expect_refused(train_with(without), ExitCode::no_device, {"cuBLASLt", "--no-cublaslt"});
  expect_trained(folder_.train(model_, kRefusedSteps, without, {"--no-cublaslt"}));
}

TEST_F(CudaBadInput, AGpuThatIsTooOld) {
  expect_refused(train({{"COMPUTE", "7.0"}}), ExitCode::no_device, {"sm_70", "sm_75"});
  expect_trained(train({{"COMPUTE", "7.5"}}));
}

TEST_F(CudaBadInput, AGpuThatNobodyMayUse) {
  expect_refused(train({{"COMPUTE_MODE", "2"}}), ExitCode::no_device, {"compute mode is prohibited"});
}

TEST_F(CudaBadInput, NoVisibleGpu) {
  for (const char* visible : {"", "5"})
    expect_refused(train_with(CudaSettings{.emulated = {}, .environment = {std::string("CUDA_VISIBLE_DEVICES=") + visible}}),
                   ExitCode::no_device, {"CUDA_VISIBLE_DEVICES", "--device cpu"});
}

TEST_F(CudaBadInput, AGpuThatIsNotThere) {
  const auto train_on = [&](const std::string& device) {
    return folder_.run({"train", model_.model(), "--data", model_.data(), "--loss", "bce", "--batch", "64", "--steps", "2",
                        "--device", device, "--out", folder_ / "trained.onnx"},
                       {.emulated = {{"GPUS", "2"}}, .environment = {}});
  };
  expect_refused(train_on("cuda:3"), ExitCode::no_device, {"cuda:3"});
  const CudaRun run = train_on("cuda:1");
  EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
  EXPECT_NE(run.result.errors.find("device: cuda:1"), std::string::npos) << run.result.errors;
}

// Whatever the size of the memory, a run either ends before the first step and says what would fit, or trains.
TEST_F(CudaBadInput, TooLittleMemory) {
  int refused = 0, trained = 0;
  for (int kibibytes = 8; kibibytes <= 136; kibibytes += 16) {
    const CudaRun run = train({{"MEMORY", std::to_string(kibibytes) + "KiB"}});
    if (run.result.exit_code == 0) {
      ++trained;
      put(folder_ / "trained.onnx", "old contents");
      continue;
    }
    ++refused;
    expect_refused(run, ExitCode::out_of_memory, {"out of memory", "the largest: ", "(temporary)"});
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(trained, 0);
}

// The message says "about": it may take following it more than once.
TEST_F(CudaBadInput, ABatchAsTheMessageProposesItFits) {
  const CudaSettings little{.emulated = {{"MEMORY", "72KiB"}}, .environment = {}};
  CudaRun run = train_with(little);
  expect_refused(run, ExitCode::out_of_memory, {"a batch of about "});
  constexpr std::string_view kAbout = "a batch of about ";
  for (int i = 0; i < 3 && run.result.exit_code != 0; ++i) {
    const std::size_t at = run.result.errors.find(kAbout);
    ASSERT_NE(at, std::string::npos) << run.result.errors;
    const std::string batch = std::to_string(std::stoi(run.result.errors.substr(at + kAbout.size())));
    run = folder_.run({"train", model_.model(), "--data", model_.data(), "--loss", "bce", "--batch", batch, "--steps", "2",
                       "--device", "cuda", "--out", folder_ / "trained.onnx"},
                      little);
  }
  expect_trained(run);
}

TEST_F(CudaBadInput, ACacheThatCannotBeWritten) {
  put(folder_ / "file", "");
  const CudaSettings settings{.emulated = {}, .environment = {"XDG_CACHE_HOME=" + (folder_ / "file").string()}};
  expect_trained(train_with(settings), {"cubins are not cached: cannot create "});
  expect_trained(folder_.train(model_, kRefusedSteps, settings, {"--no-cache"}));
}

TEST_F(CudaBadInput, ACacheOfSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directories(folder_ / "cache" / "gcomp");
  ASSERT_EQ(chown((folder_ / "cache" / "gcomp").c_str(), 12345, 12345), 0);
  expect_trained(train({}), {"belongs to user 12345", "set XDG_CACHE_HOME"});
}

TEST_F(CudaBadInput, DamagedCubinsAreRebuilt) {
  expect_trained(train({}));
  const std::string whole = contents(folder_ / "trained.onnx");
  std::size_t at = 1;
  for (const fs::path& entry : cache_entries()) {
    std::string bytes = contents(entry);
    switch (at % 3) {
      case 0: bytes.resize(bytes.size() / 2); break;
      case 1: bytes[bytes.size() * at / (at + 1)] ^= 0x20; break;
      default: bytes.clear();
    }
    put(entry, bytes);
    ++at;
  }
  ASSERT_GT(at, 3u);
  expect_trained(train({}), {"is rebuilt"});
  EXPECT_TRUE(contents(folder_ / "trained.onnx") == whole);
  const CudaRun again = train({});
  EXPECT_EQ(again.result.errors.find("is rebuilt"), std::string::npos) << again.result.errors;
}

TEST_F(CudaBadInput, ACubinThatTheDriverRefuses) {
  expect_refused(train({{"FAIL", "cuModuleLoadDataEx:1:200"}}), ExitCode::kernel_compile, {"kernel k", "CUDA_ERROR_INVALID_IMAGE"});
}

TEST_F(CudaBadInput, AKernelThatDoesNotCompile) {
  expect_refused(train({{"FAIL", "nvrtcCompileProgram:1:6"}}, {"--no-cache"}), ExitCode::kernel_compile,
                 {"NVRTC 13.0 refused a generated kernel for sm_90", "the source is kept as "});
}

TEST_F(CudaBadInput, AFailingKernelIsNamedByItsNodeWhereStepsAreChecked) {
  const CudaRun run = train({{"FAIL", "kernel:1:719"}}, {"--check-steps"});
  EXPECT_EQ(run.result.exit_code, static_cast<int>(ExitCode::no_device)) << run.result.errors;
  for (const char* part : {"gcomp train: node_", "CUDA_ERROR_LAUNCH_FAILED", "takes no more work"})
    EXPECT_NE(run.result.errors.find(part), std::string::npos) << part << " in: " << run.result.errors;
}

TEST_F(CudaBadInput, ErrorsThatEndTheProcessAreSaidToBeSo) {
  for (const std::string error : {"214", "226", "700", "710", "716", "719"}) {
    const CudaRun run = train({{"FAIL", "kernel:1:" + error}});
    EXPECT_EQ(run.result.exit_code, static_cast<int>(ExitCode::no_device)) << run.result.errors;
    for (const std::string& part : {"(" + error + ")", std::string("takes no more work")})
      EXPECT_NE(run.result.errors.find(part), std::string::npos) << part << " in: " << run.result.errors;
  }
}

/// An artifact for sm_90 with its training step, and runs of it.
class CudaArtifact : public CudaBadInput {
 protected:
  void SetUp() override {
    CudaBadInput::SetUp();
    if (IsSkipped()) return;
    const CudaRun run = folder_.run({"compile", model_.model(), "--train", "--loss", "bce", "--dim", "batch=64", "--target",
                                     "cuda:sm_90", "-o", artifact_.string()});
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
  }
  CudaRun train_artifact(const fs::path& artifact, const CudaSettings& settings = {}) {
    fs::remove_all(folder_ / "cache");
    return folder_.run({"train", artifact.string(), "--data", model_.data(), "--steps", std::to_string(kRefusedSteps), "--device",
                        "cuda", "--out", folder_ / "trained.gcx"},
                       settings);
  }

  const fs::path artifact_ = folder_ / "step.gcx";
};

TEST_F(CudaArtifact, NeedsNoCompiler) {
  const CudaRun run = train_artifact(artifact_);
  expect_trained(run);
  EXPECT_TRUE(run.nvrtc.is_null() || run.nvrtc.at("counts").value("nvrtcCompileProgram", 0) == 0) << run.nvrtc;
}

TEST_F(CudaArtifact, IsForItsDeviceOnly) {
  const auto train_on = [&](const char* device, const CudaSettings& settings) {
    return folder_.run({"train", artifact_.string(), "--data", model_.data(), "--steps", "2", "--device", device, "--out",
                        folder_ / "trained.gcx"},
                       settings);
  };
  expect_refused(train_on("cpu", {}), ExitCode::usage, {"--device cpu: ", "compiled for cuda:sm_90"});
  const CudaSettings none = with_libraries({});
  expect_refused(train_on("cpu", none), ExitCode::usage, {"--device cpu: ", "compiled for cuda:sm_90"});
  if (machine_has_driver()) GTEST_SKIP() << "this machine has a CUDA driver";
  const CudaRun run = train_on("auto", none);
  expect_refused(run, ExitCode::no_device, {"libcuda.so.1", "install the NVIDIA driver"});
  EXPECT_EQ(run.result.errors.find("--device cpu"), std::string::npos) << "it would not help: " << run.result.errors;
}

TEST_F(CudaArtifact, DamageIsRefused) {
  const std::string good = contents(artifact_);
  int refused = 0;
  constexpr std::size_t kPlaces = 24;
  for (std::size_t i = 0; i <= kPlaces; ++i) {
    std::string bad = good;
    if (i < kPlaces) bad[good.size() * i / kPlaces + 7] ^= 0x11;
    else bad.resize(good.size() * 2 / 3);
    put(folder_ / "bad.gcx", bad);
    const CudaRun run = train_artifact(folder_ / "bad.gcx");
    // A byte that says nothing, such as a file's date, may be changed.
    if (run.result.exit_code == 0) continue;
    ++refused;
    EXPECT_EQ(run.result.exit_code, static_cast<int>(ExitCode::invalid)) << i << ": " << run.result.errors;
    EXPECT_NE(run.result.errors.find("bad.gcx"), std::string::npos) << run.result.errors;
    EXPECT_EQ(run.count("cuLaunchKernel"), 0) << "nothing of it was launched";
  }
  EXPECT_GT(refused, static_cast<int>(kPlaces / 2));
}

}  // namespace
}  // namespace gcomp::test
