// Timing cuBLASLt's algorithms: once for each shape, remembered, forgotten where the file is damaged; the numbers stay the
// record's.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;

class CudaTuning : public testing::Test {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "only the emulated library counts";
    // Kernels are compiled and cached, and the number of products in the graphs of both slots is known.
    const CudaRun plain = train({});
    products_ = products(plain);
    ASSERT_GT(products_, 0);
    metrics_ = contents(folder_ / "m.jsonl");
  }

  CudaRun train(const std::vector<std::string>& more) {
    const CudaRun run = folder_.train(model_, 2, {}, more);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_TRUE(leaks(run).empty());
    return run;
  }
  static std::int64_t products(const CudaRun& run) { return run.cublaslt.at("counts").value("cublasLtMatmul", std::int64_t{0}); }

  std::filesystem::path tuning_file() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "cache"))
      if (entry.is_regular_file() && contents(entry.path()).find("matmul algorithms of gcomp") != std::string::npos)
        return entry.path();
    return {};
  }

  const RecordedModel model_ = recorded_model("mlp");
  CudaFolder folder_;
  std::int64_t products_ = 0;
  std::string metrics_;
};

TEST_F(CudaTuning, TimesOnceAndRemembers) {
  EXPECT_TRUE(tuning_file().empty());
  EXPECT_GT(products(train({"--tune"})), products_) << "nothing was timed";
  EXPECT_TRUE(contents(folder_ / "m.jsonl") == metrics_);
  ASSERT_FALSE(tuning_file().empty());
  EXPECT_EQ(products(train({"--tune"})), products_) << "what is known was timed again";
  EXPECT_TRUE(contents(folder_ / "m.jsonl") == metrics_);
}

TEST_F(CudaTuning, FullTimesMoreAndOffNothing) {
  const std::int64_t favourites = products(train({"--tune"})) - products_, all = products(train({"--tune=full"})) - products_;
  EXPECT_GT(favourites, 0);
  EXPECT_GT(all, favourites) << "full looked no further";
  EXPECT_EQ(products(train({"--tune=full"})), products_) << "what is known was timed again";
  EXPECT_EQ(products(train({"--tune=on"})), products_) << "what the favourites came to was forgotten";
  EXPECT_EQ(products(train({"--tune=off"})), products_);
  EXPECT_TRUE(contents(folder_ / "m.jsonl") == metrics_);
}

TEST_F(CudaTuning, ADamagedFileIsBegunAnew) {
  train({"--tune"});
  const std::filesystem::path file = tuning_file();
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(file));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(size - 10);
  stream << "#";
  stream.close();
  const CudaRun run = train({"--tune"});
  EXPECT_NE(run.result.errors.find("is begun anew: its contents do not match their hash"), std::string::npos) << run.result.errors;
  EXPECT_GT(products(run), products_);
  EXPECT_EQ(products(train({"--tune"})), products_);
}

}  // namespace
}  // namespace gcomp::test
