// NVRTC through the run-time interface: cubins, errors with log and saved source, the cache. Skipped where there is no NVRTC.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "runtime/cuda/nvrtc.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::cuda {
namespace {

using test::TemporaryDirectory;

constexpr char kGood[] = "extern \"C\" __global__ void k0(float* p) { p[threadIdx.x] = 2.0f; }\n";
constexpr char kOther[] = "extern \"C\" __global__ void k0(float* p) { p[threadIdx.x] = 3.0f; }\n";
constexpr char kBad[] = "extern \"C\" __global__ void k0(float* p) {\n  p[0] = undeclared;\n}\n";

LibrarySearch environment_search() {
  return search_by_variables([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
}

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const LibraryResult found = find_library(LibraryKind::nvrtc, environment_search());
    if (!found.library) GTEST_SKIP() << found.description(LibraryKind::nvrtc);
    nvrtc_ = Nvrtc::find(environment_search());
  }
  const Nvrtc& nvrtc() const { return *nvrtc_; }

 private:
  std::optional<Nvrtc> nvrtc_;
};

bool is_elf(const Cubin& cubin) {
  return cubin.image.size() > 4 && cubin.image[0] == std::byte{0x7f} && cubin.image[1] == std::byte{'E'} &&
         cubin.image[2] == std::byte{'L'};
}

TEST_F(NvrtcTest, CompilesForEachArchitecture) {
  for (const char* architecture : {"sm_75", "sm_90"}) EXPECT_TRUE(is_elf(nvrtc().compile(kGood, architecture))) << architecture;
}

TEST_F(NvrtcTest, AnErrorCarriesLogAndNumberedSource) {
  TemporaryDirectory folder;
  CubinOptions options;
  options.failure_directory = folder.path();
  const std::string sources[] = {kGood, kBad};
  try {
    compile_cubins(nvrtc(), sources, "sm_90", options);
    FAIL() << "a bad kernel compiled";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::kernel_compile);
    const std::string message = error.what();
    EXPECT_NE(message.find("identifier \"undeclared\" is undefined"), std::string::npos) << message;
    EXPECT_NE(message.find("kernel.cu(2)"), std::string::npos) << message;
    ASSERT_EQ(folder.files(), 1);
    const std::filesystem::path saved = std::filesystem::directory_iterator(folder.path())->path();
    EXPECT_NE(message.find(saved.string()), std::string::npos) << message;
    EXPECT_EQ(test::contents(saved).find("/*    1 */ extern"), 0u);
    EXPECT_NE(test::contents(saved).find("/*    2 */   p[0] = undeclared;"), std::string::npos);
  }
}

TEST_F(NvrtcTest, AnUnknownArchitectureIsNamedWithTheKnownOnes) {
  try {
    nvrtc().compile(kGood, "sm_20");
    FAIL() << "sm_20 compiled";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot compile for sm_20; it knows sm_"), std::string::npos) << error.what();
  }
}

TEST_F(NvrtcTest, EqualSourcesAreCompiledOnceAndCached) {
  TemporaryDirectory folder;
  CubinOptions options;
  options.cache_directory = folder.path();
  options.jobs = 2;
  const std::string sources[] = {kGood, kOther, kGood};
  const std::vector<Cubin> cold = compile_cubins(nvrtc(), sources, "sm_90", options);
  EXPECT_EQ(folder.files(), 2);
  EXPECT_EQ(cold[0].image, cold[2].image);
  EXPECT_NE(cold[0].image, cold[1].image);
  const std::vector<Cubin> warm = compile_cubins(nvrtc(), sources, "sm_90", options);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(warm[i].cached);
    EXPECT_EQ(warm[i].image, cold[i].image);
  }
  compile_cubins(nvrtc(), sources, "sm_80", options);
  EXPECT_EQ(folder.files(), 4);
}

TEST_F(NvrtcTest, ADamagedEntryIsRebuiltAndSaid) {
  TemporaryDirectory folder;
  CubinOptions options;
  options.cache_directory = folder.path();
  std::vector<std::string> said;
  options.log = [&](std::string_view line) { said.emplace_back(line); };
  const std::string sources[] = {kGood};
  const std::vector<Cubin> good = compile_cubins(nvrtc(), sources, "sm_90", options);
  const std::filesystem::path entry = std::filesystem::directory_iterator(folder.path())->path();
  test::put(entry, test::contents(entry).substr(0, 100));
  const std::vector<Cubin> rebuilt = compile_cubins(nvrtc(), sources, "sm_90", options);
  EXPECT_FALSE(rebuilt[0].cached);
  EXPECT_EQ(rebuilt[0].image, good[0].image);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("is rebuilt: its header or size is wrong"), std::string::npos) << said[0];
}

}  // namespace
}  // namespace gcomp::runtime::cuda
