// Every call of a short training fails once, each in a run of its own: the run ends in one clear error, holds nothing when it ends,
// and leaves the files as they were.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::put;

constexpr std::int64_t kShortRun = 3;

/// What gives something back: its failure is no reason to fail what was computed, and what it did not give back stays.
bool releases(const std::string& name) {
  for (const char* part : {"Destroy", "Free", "Unload", "Release"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

std::string error_of(const std::string& name) {
  if (name == "cuMemAlloc_v2" || name == "cuMemHostAlloc") return "2";  // CUDA_ERROR_OUT_OF_MEMORY
  if (name == "cuModuleLoadDataEx") return "200";                       // CUDA_ERROR_INVALID_IMAGE
  if (name == "kernel") return "719";                                   // CUDA_ERROR_LAUNCH_FAILED
  if (name == "copy") return "700";                                     // CUDA_ERROR_ILLEGAL_ADDRESS
  if (name.starts_with("nvrtc")) return name == "nvrtcCompileProgram" ? "6" : "11";
  if (name.starts_with("cublasLt")) return "14";  // CUBLAS_STATUS_INTERNAL_ERROR
  if (name.starts_with("cudnn")) return "4000";   // CUDNN_STATUS_INTERNAL_ERROR
  return "999";                                   // CUDA_ERROR_UNKNOWN
}

int lines_with(const std::string& text, const std::string& part) {
  int lines = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++lines;
  return lines;
}

class CudaFailures : public testing::Test {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "only the emulated libraries can be told to fail";
    put(folder_ / "trained.onnx", "old contents");
  }

  CudaRun train(const std::string& failure, const std::vector<std::string>& more) {
    std::filesystem::remove(folder_ / "m.jsonl");
    return folder_.train(model_, kShortRun, {.emulated = {{"FAIL", failure}}, .environment = {}}, more);
  }

  /// "" for one clear error with the right exit code, nothing held and nothing written; else what is wrong.
  std::string problem_of_failure(const CudaRun& run, bool may_leak) {
    const CommandResult& result = run.result;
    if (result.exit_code < 5 || result.exit_code > 7) return "exit " + std::to_string(result.exit_code);
    if (lines_with(result.errors, "gcomp train: ") != 1) return "not one error";
    if (result.errors.find("internal error") != std::string::npos) return "an internal error";
    for (const auto& [kind, count] : leaks(run))
      if (!may_leak) return "leaks " + std::to_string(count) + " " + kind;
    // What fails after the file was written leaves the new one, whole.
    const std::string file = contents(folder_ / "trained.onnx");
    if (file != "old contents" && file != whole_) return "the file is neither the old nor the new one";
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().string().find(".tmp") != std::string::npos) return "left behind: " + entry.path().string();
    return "";
  }

  /// Runs once for each call that a run without failures makes, of the functions that `wanted` accepts.
  void fail_each(const nlohmann::json& counts, const std::vector<std::string>& more, bool (*wanted)(const std::string& name)) {
    int runs = 0;
    for (const auto& [name, count] : counts.get<std::map<std::string, int>>()) {
      if (!wanted(name)) continue;
      for (int call = 1; call <= count; ++call, ++runs) {
        const CudaRun run = train(name + ":" + std::to_string(call) + ":" + error_of(name), more);
        std::string problem;
        if (run.result.exit_code == 0 && may_succeed(name)) {
          if (contents(folder_ / "trained.onnx") != whole_) problem = "the result is another";
        } else {
          problem = problem_of_failure(run, releases(name) || name == "cuCtxSetCurrent");
        }
        put(folder_ / "trained.onnx", "old contents");
        EXPECT_EQ(problem, "") << name << ", call " << call << ": " << run.result.errors;
      }
    }
    std::printf("%d runs, each with one failure\n", runs);
  }

  /// What a release gives is not looked at, and the host waits and makes a context current for releases too; a driver is asked
  /// before it is taken; an NVRTC that does not list its architectures is tried; an algorithm for a product that fails is passed
  /// over.
  static bool may_succeed(const std::string& name) {
    constexpr std::string_view kMay[] = {"cuCtxSetCurrent",           "cuStreamSynchronize",    "cuInit",
                                         "nvrtcGetNumSupportedArchs", "nvrtcGetSupportedArchs", "cublasLtMatmul"};
    return releases(name) || std::find(std::begin(kMay), std::end(kMay), name) != std::end(kMay);
  }

  CudaRun whole_run(const std::vector<std::string>& more) {
    const CudaRun run = train("", more);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_EQ(leaks(run), (std::map<std::string, std::int64_t>()));
    whole_ = contents(folder_ / "trained.onnx");
    put(folder_ / "trained.onnx", "old contents");
    return run;
  }

  RecordedModel model_ = recorded_model("mlp");
  CudaFolder folder_;
  std::string whole_;
};

TEST_F(CudaFailures, OfEveryCallOfTheDriver) {
  const CudaRun run = whole_run({});
  fail_each(run.driver.at("counts"), {}, [](const std::string& name) { return name.starts_with("cu"); });
}

TEST_F(CudaFailures, OfEveryKernelAndCopyThatRuns) {
  const CudaRun run = whole_run({});
  fail_each(run.driver.at("counts"), {}, [](const std::string& name) { return name == "kernel" || name == "copy"; });
}

TEST_F(CudaFailures, OfEveryCallOfTheCompiler) {
  const CudaRun run = whole_run({"--no-cache"});
  fail_each(run.nvrtc.at("counts"), {"--no-cache"}, [](const std::string& name) {
    return name.starts_with("nvrtc") && name != "nvrtcVersion";  // then the machine's own NVRTC would be tried
  });
}

/// Of the calls that timing adds, which all come before the first step. An algorithm that fails is passed over (CudaTuning).
TEST_F(CudaFailures, OfCallsThatTimeProducts) {
  constexpr int kStride = 7;
  const std::vector<std::string> tuned{"--tune", "--no-cache"};
  const nlohmann::json plain = whole_run({"--no-cache"}).driver.at("counts"), all = whole_run(tuned).driver.at("counts");
  int runs = 0;
  for (const auto& [name, count] : all.get<std::map<std::string, int>>()) {
    if (!name.starts_with("cu") || releases(name) || may_succeed(name)) continue;
    for (int call = 1; call <= count - plain.value(name, 0); call += kStride, ++runs) {
      const CudaRun run = train(name + ":" + std::to_string(call) + ":" + error_of(name), tuned);
      EXPECT_EQ(problem_of_failure(run, false), "") << name << ", call " << call << ": " << run.result.errors;
      put(folder_ / "trained.onnx", "old contents");
    }
  }
  std::printf("%d runs, each with one failure\n", runs);
}

// It describes each convolution in hundreds of calls: the first and the last of each function. Where it does not start, generated
// kernels compute.
TEST_F(CudaFailures, OfCallsOfTheConvolutionLibrary) {
  model_ = recorded_model("mnist_cnn");
  const CudaRun run = whole_run({});
  for (const auto& [name, count] : run.cudnn.at("counts").get<std::map<std::string, int>>()) {
    if (!name.starts_with("cudnn") || name == "cudnnCreate" || releases(name)) continue;
    for (const int call : {1, count}) {
      const CudaRun failed = train(name + ":" + std::to_string(call) + ":" + error_of(name), {"--no-cache"});
      EXPECT_EQ(problem_of_failure(failed, false), "") << name << ", call " << call << ": " << failed.result.errors;
      put(folder_ / "trained.onnx", "old contents");
    }
  }
}

TEST_F(CudaFailures, OfEveryCallOfTheMatrixLibrary) {
  const CudaRun run = whole_run({});
  fail_each(run.cublaslt.at("counts"), {}, [](const std::string& name) { return name.starts_with("cublasLt"); });
}

}  // namespace
}  // namespace gcomp::test
