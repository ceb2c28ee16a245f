// Timing cuBLASLt's algorithms: once for each shape, remembered, forgotten where the file is damaged; which one is chosen, and over
// what it is timed. The emulated library says how long its algorithms take, and gives each its own last digits where asked.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ir/base/error.h"
#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using Settings = std::map<std::string, std::string>;

/// The favourite is the fastest, so that a tuned run computes as one that is not.
const Settings kInOrder = {{"CUBLASLT_TIMES", "10,20,30"}};

class CudaTuning : public testing::Test {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "only the emulated library counts";
    // Kernels are compiled and cached, and the number of products in the graphs of both slots is known.
    plain_ = train({});
    products_ = products(plain_);
    ASSERT_GT(products_, 0);
    metrics_ = metrics();
  }

  CudaRun train(const std::vector<std::string>& more, Settings settings = kInOrder) {
    const CudaRun run = folder_.train(model_, 2, {.emulated = std::move(settings)}, more);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_TRUE(leaks(run).empty());
    return run;
  }
  std::string metrics() const { return contents(folder_ / "m.jsonl"); }
  static std::int64_t count(const CudaRun& run, const char* name) { return run.cublaslt.at("counts").value(name, std::int64_t{0}); }
  static std::int64_t products(const CudaRun& run) { return count(run, "cublasLtMatmul"); }
  /// Of the steps and of the timing.
  static std::int64_t with_epilogue(const CudaRun& run) {
    return count(run, "products with an epilogue") + count(run, "products with a bias gradient");
  }

  std::filesystem::path tuning_file() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "cache"))
      if (entry.is_regular_file() && contents(entry.path()).find("timed products of gcomp") != std::string::npos)
        return entry.path();
    return {};
  }

  const RecordedModel model_ = recorded_model("mlp");
  CudaFolder folder_;
  CudaRun plain_;
  std::int64_t products_ = 0;
  std::string metrics_;
};

TEST_F(CudaTuning, TimesOnceAndRemembers) {
  EXPECT_TRUE(tuning_file().empty());
  EXPECT_GT(products(train({"--tune"})), products_) << "nothing was timed";
  EXPECT_TRUE(metrics() == metrics_);
  ASSERT_FALSE(tuning_file().empty());
  EXPECT_EQ(products(train({"--tune"})), products_) << "what is known was timed again";
  EXPECT_TRUE(metrics() == metrics_);
}

TEST_F(CudaTuning, FullTimesMoreAndOffNothing) {
  const std::int64_t favourites = products(train({"--tune"})) - products_, all = products(train({"--tune=full"})) - products_;
  EXPECT_GT(favourites, 0);
  EXPECT_GT(all, favourites) << "full looked no further";
  EXPECT_EQ(products(train({"--tune=full"})), products_) << "what is known was timed again";
  EXPECT_EQ(products(train({"--tune=on"})), products_) << "what the favourites came to was forgotten";
  EXPECT_EQ(products(train({"--tune=off"})), products_);
  EXPECT_TRUE(metrics() == metrics_);
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

/// The second algorithm adds in another order, and so shows.
TEST_F(CudaTuning, TheFastestIsTakenAndStaysTaken) {
  const auto with_times = [](const char* times) { return Settings{{"CUBLASLT_TIMES", times}, {"CUBLASLT_ORDERS", "1"}}; };
  train({}, with_times("20,10"));
  EXPECT_TRUE(metrics() == metrics_) << "nobody asked for times";
  train({"--tune"}, with_times("20,10"));
  const std::string second = metrics();
  EXPECT_FALSE(second == metrics_) << "the favourite was taken, or it has the same digits";
  EXPECT_EQ(products(train({"--tune"}, with_times("10,20"))), products_);
  EXPECT_TRUE(metrics() == second) << "what was chosen did not stay";
}

/// Each run that is timed finds the cache written over, and numbers that are not all alike.
TEST_F(CudaTuning, ProductsAreTimedAsStepsFindThem) {
  const CudaRun run = train({"--tune"});
  const std::int64_t timed = products(run) - products_;
  EXPECT_EQ(run.count("memsets beyond the cache") - plain_.count("memsets beyond the cache"), timed);
  EXPECT_EQ(count(run, "products of a constant"), count(plain_, "products of a constant"));
}

/// With its epilogue a product may be slower than the plain one and the kernel that follows it.
TEST_F(CudaTuning, AnEpilogueIsTakenWhereItIsFaster) {
  const auto with_times = [](const char* fused, const char* kernel) {
    return Settings{{"CUBLASLT_TIMES", "10"}, {"CUBLASLT_EPILOGUE_TIMES", fused}, {"KERNEL_TIME", kernel}};
  };
  const std::int64_t fused = with_epilogue(plain_);
  ASSERT_GT(fused, 0) << "the model has no epilogues";
  train({"--tune", "--no-cache"}, with_times("14", "5"));
  EXPECT_TRUE(metrics() == metrics_) << "10 + 5 is more than 14";
  EXPECT_GT(with_epilogue(train({"--tune"}, with_times("16", "5"))), 0);
  const CudaRun remembered = train({"--tune"}, with_times("1", "5"));
  EXPECT_EQ(products(remembered), products_) << "what is known was timed again";
  EXPECT_EQ(with_epilogue(remembered), 0) << "10 + 5 is less than 16";
  EXPECT_GT(remembered.count("kernel"), plain_.count("kernel")) << "no kernels stand in";
}

/// GELU, biases and their gradients: where the kernels are faster, all is as with a library that has no epilogues.
TEST_F(CudaTuning, EveryEpilogueGivesWayToItsKernel) {
  const RecordedModel model = recorded_model("bert_tiny");
  const auto trained = [&](Settings settings, const std::vector<std::string>& more) {
    settings.insert({{"CUBLASLT_TIMES", "10"}, {"CUBLASLT_EPILOGUE_TIMES", "30"}, {"KERNEL_TIME", "5"}});
    std::vector<std::string> options{"--precision", "bf16", "--no-cache"};
    options.insert(options.end(), more.begin(), more.end());
    const CudaRun run = folder_.train(model, 2, {.emulated = settings}, options);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_TRUE(leaks(run).empty());
    return contents(folder_ / "trained.onnx");
  };
  const std::string without = trained({{"CUBLASLT_EPILOGUES", "0"}}, {});
  EXPECT_FALSE(trained({}, {}) == without) << "the model has no epilogues, or they have the digits of the kernels";
  EXPECT_TRUE(trained({}, {"--tune"}) == without);
  EXPECT_TRUE(trained({{"ORDER", "delayed"}, {"RACES", "1"}}, {"--tune"}) == without);
}

/// In TF32 the library's are slower but for a bias alone; a clock may say otherwise.
TEST_F(CudaTuning, InTf32OnlyBiasesAreTheLibrarys) {
  const RecordedModel model = recorded_model("bert_tiny");
  const auto counts = [&](const std::vector<std::string>& more) {
    std::vector<std::string> options{"--no-cache"};
    options.insert(options.end(), more.begin(), more.end());
    const CudaRun run = folder_.train(model, 2, {.emulated = kInOrder}, options);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return std::pair{count(run, "products with an epilogue"), count(run, "products with a bias gradient")};
  };
  const auto strict = counts({}), tf32 = counts({"--tf32"});
  EXPECT_GT(strict.second, 0);
  EXPECT_GT(tf32.first, 0) << "no bias";
  EXPECT_EQ(tf32.second, 0);
  EXPECT_GT(counts({"--tf32", "--tune"}).second, 0) << "nothing was timed with an epilogue";
}

TEST_F(CudaTuning, WhatFailsIsPassedOver) {
  const auto failing = [](const char* calls) {
    Settings settings = kInOrder;
    settings["FAIL"] = calls;
    return settings;
  };
  const std::string passed_over = " of 2 that cuBLASLt offers fails and is passed over: cublasLtMatmul gave status 14";
  const CudaRun one = train({"--tune"}, failing("cublasLtMatmul:1:14"));
  EXPECT_NE(one.result.errors.find("algorithm 1" + passed_over), std::string::npos) << one.result.errors;
  EXPECT_EQ(one.result.errors.find("algorithm 2" + passed_over), std::string::npos) << one.result.errors;
  EXPECT_EQ(products(train({"--tune"})), products_) << "what took its place is not remembered";
  const CudaRun fused = train({"--tune", "--no-cache"}),
                both = train({"--tune", "--no-cache"}, failing("epilogue:1:14,epilogue:2:14"));
  EXPECT_NE(both.result.errors.find("algorithm 2" + passed_over), std::string::npos) << both.result.errors;
  EXPECT_LT(with_epilogue(both), with_epilogue(fused)) << "no plain product takes its place";
  const CudaRun all =
      folder_.train(model_, 2, {.emulated = failing("cublasLtMatmul:1:14,cublasLtMatmul:2:14")}, {"--tune", "--no-cache"});
  EXPECT_EQ(all.result.exit_code, 6) << all.result.errors;
  EXPECT_NE(all.result.errors.find("all 2 algorithms that cuBLASLt offers for this product fail; --no-cublaslt computes"),
            std::string::npos)
      << all.result.errors;
  EXPECT_TRUE(leaks(all).empty());
}

/// Nothing was timed: it is within the capture that it fails.
TEST_F(CudaTuning, WhatFailsInTheStepIsPassedOver) {
  const auto failing = [&](const char* calls, const std::vector<std::string>& more) {
    return folder_.train(model_, 2, {.emulated = {{"FAIL", calls}}}, more);
  };
  const CudaRun one = failing("cublasLtMatmul:1:14", {});
  EXPECT_EQ(one.result.exit_code, 0) << one.result.errors;
  EXPECT_TRUE(metrics() == metrics_);
  EXPECT_NE(one.result.errors.find("an algorithm that cuBLASLt offers fails and is passed over: cublasLtMatmul gave status 14"),
            std::string::npos)
      << one.result.errors;
  EXPECT_TRUE(leaks(one).empty());
  const CudaRun all = failing("cublasLtMatmul:1:14,cublasLtMatmul:2:15", {});
  EXPECT_EQ(all.result.exit_code, 6) << all.result.errors;
  EXPECT_NE(all.result.errors.find(" gave status 14"), std::string::npos) << all.result.errors;
  EXPECT_TRUE(leaks(all).empty());
}

/// The favourite stays, and a later run with more memory times anew.
TEST_F(CudaTuning, WithoutMemoryNothingIsTimed) {
  Settings little = {{"CUBLASLT_TIMES", "20,10"}, {"CUBLASLT_ORDERS", "1"}, {"MEMORY", "3MiB"}};
  EXPECT_EQ(products(train({"--tune"}, little)), products_);
  EXPECT_TRUE(metrics() == metrics_);
  little.erase("MEMORY");
  little["GPU_NAME"] = "Emulated GPU";  // the same kind, but for its memory
  EXPECT_GT(products(train({"--tune"}, little)), products_);
}

}  // namespace
}  // namespace gcomp::test
