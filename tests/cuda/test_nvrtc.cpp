// The emulated NVRTC itself.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cuda/emulated_libraries.h"

namespace gcomp::tests {
namespace {

using namespace cuda;

class CudaNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    void* library = open_emulated("libnvrtc.so.13");
    ASSERT_NE(library, nullptr);
    for_each_function(n, [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      EXPECT_NE(function, nullptr) << name;
    });
  }
  void TearDown() override {
    unsetenv("GCOMP_EMULATED_NVRTC");
    unsetenv("GCOMP_EMULATED_NVRTC_CACHE");
  }

  nvrtcResult compile(const char* text, const char* option, std::string& log) {
    nvrtcProgram program = nullptr;
    EXPECT_EQ(n.CreateProgram(&program, text, "t.cu", 0, nullptr, nullptr), NVRTC_SUCCESS);
    const nvrtcResult result = n.CompileProgram(program, 1, &option);
    std::size_t bytes = 0;
    EXPECT_EQ(n.GetProgramLogSize(program, &bytes), NVRTC_SUCCESS);
    log.resize(bytes);
    EXPECT_EQ(n.GetProgramLog(program, log.data()), NVRTC_SUCCESS);
    EXPECT_EQ(n.DestroyProgram(&program), NVRTC_SUCCESS);
    return result;
  }
  std::vector<int> architectures() {
    int count = 0;
    EXPECT_EQ(n.GetNumSupportedArchs(&count), NVRTC_SUCCESS);
    std::vector<int> all(static_cast<std::size_t>(count));
    EXPECT_EQ(n.GetSupportedArchs(all.data()), NVRTC_SUCCESS);
    return all;
  }
  NvrtcFunctions n;
};

TEST_F(CudaNvrtc, IsTheVersionThatItIsToldToBe) {
  int major = 0, minor = 0;
  setenv("GCOMP_EMULATED_NVRTC", "12.4", 1);
  EXPECT_EQ(n.Version(&major, &minor), NVRTC_SUCCESS);
  EXPECT_EQ(10 * major + minor, 124);
  EXPECT_EQ(architectures(), (std::vector<int>{50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90}));
  setenv("GCOMP_EMULATED_NVRTC", "13.0", 1);
  EXPECT_EQ(architectures(), (std::vector<int>{75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121}));
}

TEST_F(CudaNvrtc, GivesTheCompilersLog) {
  std::string log;
  EXPECT_EQ(compile("extern \"C\" __global__ void k0(float* p0) {\n  p0[0] = unknown;\n}\n", "--gpu-architecture=sm_90", log),
            NVRTC_ERROR_COMPILATION);
  EXPECT_NE(log.find("kernel.cu:2"), std::string::npos) << log;
  EXPECT_NE(log.find("unknown"), std::string::npos) << log;
}

TEST_F(CudaNvrtc, KnowsOnlyItsArchitectures) {
  std::string log;
  EXPECT_EQ(compile("", "--gpu-architecture=sm_60", log), 5);
  EXPECT_NE(log.find("--gpu-architecture"), std::string::npos) << log;
}

TEST_F(CudaNvrtc, CompilesATextOnce) {
  const auto folder = std::filesystem::temp_directory_path() / ("gcomp-nvrtc-test-" + std::to_string(getpid()));
  setenv("GCOMP_EMULATED_NVRTC_CACHE", folder.c_str(), 1);
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  std::string log;
  const char* text = "extern \"C\" __global__ void k0(float* p0) { p0[0] = 1; }\n";
  EXPECT_EQ(compile(text, "--gpu-architecture=sm_90", log), NVRTC_SUCCESS) << log;
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(compile(text, "--gpu-architecture=sm_80", log), NVRTC_SUCCESS) << log;
  EXPECT_EQ(files(), 1) << "what runs on the host is the same for each architecture";
  EXPECT_EQ(compile("extern \"C\" __global__ void k1(float* p0) { p0[0] = 1; }\n", "--gpu-architecture=sm_80", log), NVRTC_SUCCESS);
  EXPECT_EQ(files(), 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gcomp::tests
