// What gcomp doctor finds on good and bad machines, each bad line with its cure, and gcomp cache.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

class CudaDoctor : public testing::Test {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "the machine is what it is";
  }

  /// The report; every line that is not in order must say what to do.
  nlohmann::json examine(std::map<std::string, std::string> emulated, std::vector<std::string> environment = {},
                         const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = {"doctor", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const CudaRun run = folder_.run(arguments, {.emulated = std::move(emulated), .environment = std::move(environment)});
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_TRUE(leaks(run).empty());
    nlohmann::json report = nlohmann::json::parse(run.result.output);
    EXPECT_EQ(report.at("cpu_training"), true);
    for (const nlohmann::json& finding : report.at("findings"))
      EXPECT_TRUE(finding.at("health") == "ok" || finding.at("cure") != "") << finding;
    return report;
  }
  static nlohmann::json finding(const nlohmann::json& report, const std::string& name) {
    for (const nlohmann::json& one : report.at("findings"))
      if (one.at("name") == name) return one;
    ADD_FAILURE() << "no '" << name << "' in " << report;
    return {{"health", ""}, {"detail", ""}, {"cure", ""}};
  }
  static void expect(const nlohmann::json& report, const std::string& name, const std::string& health, const std::string& detail) {
    const nlohmann::json found = finding(report, name);
    EXPECT_EQ(found.at("health"), health) << found;
    EXPECT_NE(found.at("detail").get<std::string>().find(detail), std::string::npos) << found;
  }

  CudaFolder folder_;
};

TEST_F(CudaDoctor, AGpuThatIsNotThere) {
  const nlohmann::json report = examine({}, {}, {"--device", "cuda:1"});
  expect(report, "GPU cuda:0", "ok", "sm_90");
  expect(report, "GPU cuda:1", "bad", "there is none of this number among 1");
  EXPECT_EQ(report.at("cuda_training"), false);
}

TEST_F(CudaDoctor, AGoodMachine) {
  const nlohmann::json report = examine({{"MEMORY", "3GiB"}});
  expect(report, "CUDA driver", "ok", "of CUDA 13.0, ");
  expect(report, "GPU cuda:0", "ok", "sm_90, 3.0 GiB, 3.0 GiB free");
  expect(report, "NVRTC", "ok", "13.0, ");
  expect(report, "driver and NVRTC", "ok", "fit each other");
  expect(report, "C++ compiler", "ok", "/");
  expect(report, "kernel cache", "ok", (folder_ / "cache").string());
  expect(report, "training on the CPU", "ok", "a step of a tiny network took");
  expect(report, "training on the GPU", "ok", "a step of a tiny network took");
  EXPECT_EQ(report.at("cuda_training"), true);
}

TEST_F(CudaDoctor, WhatRanksNeed) {
  expect(examine({{"GPUS", "3"}}), "NCCL", "ok", "2.28.0, ");
  expect(examine({{"GPUS", "3"}}), "GPU to GPU", "ok", "all 3 reach each other's memory");
  expect(examine({{"GPUS", "2"}, {"PEER_ACCESS", "0"}}), "GPU to GPU", "absent",
         "no way into each other's memory: cuda:0 and cuda:1");
  const nlohmann::json without =
      nlohmann::json::parse(folder_.run({"doctor", "--json", "--library", "nccl=/nowhere"}).result.output);
  expect(without, "NCCL", "absent", "not found");
  const std::string cure = finding(without, "NCCL").at("cure");
  EXPECT_NE(cure.find("several ranks on GPUs (--ranks N --device cuda) need it: install it (pip: nvidia-nccl-cu13)"), cure.npos)
      << cure;
}

TEST_F(CudaDoctor, WithoutCudnnNothingButSpeedIsLost) {
  expect(examine({}), "cuDNN", "ok", "9.19.0, ");
  struct Unfit {
    std::map<std::string, std::string> emulated;
    const char *detail, *cure;
  };
  for (const Unfit& unfit :
       {Unfit{{{"CUDNN", "8.9"}}, "it is version 8.9.0, wanted 9", "install it (pip: nvidia-cudnn-cu13)"},
        Unfit{{{"CUDNN_CUDA", "14.0"}}, "newer than the driver", "(pip: nvidia-cudnn-cu13)"},
        Unfit{
            {{"DRIVER", "12.4"}, {"NVRTC", "12.4"}, {"CUBLASLT", "12.4"}}, "newer than the driver", "(pip: nvidia-cudnn-cu12)"}}) {
    const nlohmann::json report = examine(unfit.emulated, {}, {"--library", "cudnn=" GCOMP_EMULATED_LIBRARIES});
    expect(report, "cuDNN", "absent", "not found");
    EXPECT_EQ(report.at("cuda_training"), true);
    const nlohmann::json found = finding(report, "cuDNN");
    EXPECT_NE(found.dump().find(unfit.detail), std::string::npos) << found;
    const std::string cure = found.at("cure");
    EXPECT_NE(cure.find(unfit.cure), std::string::npos) << cure;
    EXPECT_NE(cure.find("without it generated kernels compute convolutions, which is slower"), std::string::npos) << cure;
  }
}

TEST_F(CudaDoctor, ADriverOlderThanNvrtc) {
  const nlohmann::json report = examine({{"DRIVER", "12.4"}});
  expect(report, "driver and NVRTC", "bad", "too old for the NVRTC that is there");
  expect(report, "training on the GPU", "bad", "too old");
  EXPECT_EQ(report.at("cuda_training"), false);
  const std::string cure = finding(report, "cuBLASLt").at("cure");
  EXPECT_NE(cure.find("update the driver, or install a cuBLASLt of its major version (pip: nvidia-cublas-cu12)"), std::string::npos)
      << cure;
}

TEST_F(CudaDoctor, ADriverThatIsTooOld) {
  const nlohmann::json report = examine({{"DRIVER", "11.8"}});
  expect(report, "CUDA driver", "absent", "it is the driver of CUDA 11.8, wanted 12.0 or newer");
  const std::string cure = finding(report, "CUDA driver").at("cure");
  EXPECT_EQ(cure.find("update the NVIDIA driver"), 0u) << cure;
  EXPECT_EQ(cure.find("install the NVIDIA driver"), std::string::npos) << cure;
}

TEST_F(CudaDoctor, ALibraryThatIsGivenIsTheOnlyOneTried) {
  const std::string folder = GCOMP_EMULATED_LIBRARIES, missing = folder_ / "libnvrtc.so.13";
  const auto given = [&](const std::string& nvrtc) {
    return nlohmann::json::parse(
        folder_.run({"doctor", "--json", "--library", "nvrtc=" + nvrtc, "--library", "cublaslt=" + folder}).result.output);
  };
  const nlohmann::json report = given(folder + "/libnvrtc.so.13");
  expect(report, "NVRTC", "ok", "libnvrtc.so.13 (given path)");
  expect(report, "cuBLASLt", "ok", "libcublasLt.so.13 (given path)");
  expect(report, "training on the GPU", "ok", "a step of a tiny network took");
  expect(given(missing), "NVRTC", "bad", missing + " (given path");
  const nlohmann::json older = nlohmann::json::parse(
      folder_.run({"doctor", "--json", "--library", "cublaslt=" + missing}, {.emulated = {{"DRIVER", "12.4"}}, .environment = {}})
          .result.output);
  EXPECT_EQ(finding(older, "cuBLASLt").at("cure").get<std::string>().find("install it (pip: nvidia-cublas-cu12)"), 0u) << older;
  for (const std::string wrong : {"nvrtc", "nvrtc=", "nvrtx=/tmp"}) {
    const CommandResult result = folder_.run({"doctor", "--library", wrong}).result;
    EXPECT_EQ(result.exit_code, 2) << wrong;
    EXPECT_NE(result.errors.find("NAME one of driver, nvrtc, cublaslt, cudnn and nccl"), std::string::npos) << result.errors;
  }
}

TEST_F(CudaDoctor, GpusThatCannotBeUsed) {
  expect(examine({{"COMPUTE", "7.0"}}), "GPU cuda:0", "bad", "it is sm_70, and gcomp needs sm_75");
  expect(examine({{"COMPUTE_MODE", "2"}}), "GPU cuda:0", "bad", "its compute mode is prohibited");
  const nlohmann::json hidden = examine({}, {"CUDA_VISIBLE_DEVICES="});
  expect(hidden, "CUDA driver", "absent", "CUDA_ERROR_NO_DEVICE");
  EXPECT_NE(finding(hidden, "CUDA driver").at("cure").get<std::string>().find("unset it"), std::string::npos) << hidden;
}

TEST_F(CudaDoctor, AFailureOfTheDriverIsAFinding) {
  expect(examine({{"FAIL", "cuInit:2:802"}}), "CUDA driver", "absent", "(802)");
  expect(examine({{"FAIL", "cuMemAlloc_v2:1:2"}}), "training on the GPU", "bad", "out of memory");
}

TEST_F(CudaDoctor, ACacheThatOthersOwnIsSaid) {
  const std::filesystem::path file = folder_ / "nothing";
  runtime::test::put(file, "");
  expect(examine({}, {"XDG_CACHE_HOME=" + file.string()}), "kernel cache", "bad", "nothing");
}

TEST_F(CudaDoctor, TheCacheIsListedAndCleared) {
  examine({});  // its steps leave kernels behind
  nlohmann::json list = nlohmann::json::parse(folder_.run({"cache", "list", "--json"}).result.output);
  EXPECT_GE(list.at("entries").size(), 2u);
  std::int64_t cubins = 0, bytes = 0;
  for (const nlohmann::json& entry : list.at("entries")) {
    cubins += entry.at("key").get<std::string>().find("cubin of gcomp") == 0;
    bytes += entry.at("bytes").get<std::int64_t>();
  }
  EXPECT_GE(cubins, 1);
  EXPECT_EQ(list.at("bytes"), bytes);
  EXPECT_LE(list.at("bytes"), list.at("most_bytes"));
  const nlohmann::json cleared = nlohmann::json::parse(folder_.run({"cache", "clear", "--json"}).result.output);
  EXPECT_EQ(cleared.at("removed"), list.at("entries").size());
  list = nlohmann::json::parse(folder_.run({"cache", "list", "--json"}).result.output);
  EXPECT_TRUE(list.at("entries").empty());
  EXPECT_EQ(folder_.run({"cache", "clean"}).result.exit_code, 2);
}

}  // namespace
}  // namespace gcomp::test
