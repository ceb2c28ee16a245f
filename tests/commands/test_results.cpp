// What the commands print as their result: on stdout, whatever the verbosity, in units that do not round to nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/drive/command.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

class Results : public testing::Test {
 protected:
  /// gcomp COMMAND on the digits of examples/, which are two convolutions and one product.
  CommandResult on_digits(const std::string& command, const std::vector<std::string>& more) {
    const std::filesystem::path digits = std::filesystem::path(GCOMP_SOURCE_DIR) / "examples" / "digits";
    std::vector<std::string> arguments{command,  digits / "digits.onnx", "--data",  digits / "train.npz",
                                       "--loss", "cross_entropy",        "--batch", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }

  TemporaryDirectory folder_;
};

/// A figure with a unit that shows none of its digits, such as "0.0 TFLOP/s".
const std::regex kNothing("(^|[^0-9.])0(\\.0+)? ([TGMk]?FLOP/s|[TGMk]?B/s|s|ms|us|rows/s)\\b");

TEST_F(Results, TheProfileIsAResult) {
  const CommandResult result = on_digits("bench", {"--steps", "3", "--warmup", "1", "--profile", "-q"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("[1-9][0-9.]* [TGM]FLOP/s +convolution, weight gradient")))
      << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("[1-9][0-9.]* [TGM]FLOP/s +matmul 64x10x128"))) << result.output;
  EXPECT_FALSE(std::regex_search(result.output, kNothing)) << result.output;
  EXPECT_NE(result.output.find("step: median "), std::string::npos) << result.output;
}

TEST_F(Results, TheProfileIsInJson) {
  const CommandResult result = on_digits("bench", {"--steps", "3", "--warmup", "1", "--profile", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json report = nlohmann::json::parse(result.output);
  EXPECT_EQ(report.at("profile").size(), report.at("launches"));
  for (const nlohmann::json& step : report.at("profile")) EXPECT_GT(step.at("us"), 0) << step;
}

TEST_F(Results, AForwardPassIsTimed) {
  const std::filesystem::path digits = std::filesystem::path(GCOMP_SOURCE_DIR) / "examples" / "digits";
  const auto bench = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "bench", digits / "digits.onnx", "--data", digits / "train.npz", "--inference", "--batch", "64", "--steps", "3", "--warmup",
        "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  };
  const CommandResult shown = bench({"-q"});
  ASSERT_EQ(shown.exit_code, 0) << shown.errors;
  EXPECT_TRUE(std::regex_search(shown.output, std::regex("^forward pass: median [1-9].* \\(3 passes after 1 of warm-up\\)")))
      << shown.output;
  const CommandResult result = bench({"--profile", "--json"}), step = on_digits("bench", {"--steps", "3", "--profile", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  ASSERT_EQ(step.exit_code, 0) << step.errors;
  const nlohmann::json report = nlohmann::json::parse(result.output);
  nlohmann::json of_step = nlohmann::json::parse(step.output);
  EXPECT_EQ(report.at("profile").size(), report.at("launches"));
  EXPECT_LT(report.at("launches"), of_step.at("launches"));
  EXPECT_LE(report.at("min_ms"), report.at("median_ms"));
  EXPECT_GT(report.at("min_ms"), 0);
  of_step.erase("losses");
  for (const auto& [field, value] : of_step.items()) EXPECT_TRUE(report.contains(field)) << field;
  EXPECT_EQ(report.size(), of_step.size()) << report;
}

TEST_F(Results, AShortTrainingTakesTime) {
  const CommandResult result = on_digits("train", {"--steps", "1", "--out", folder_ / "trained.onnx"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("trained 1 step in [1-9][0-9.]* [mu]?s \\("))) << result.output;
  EXPECT_FALSE(std::regex_search(result.output + result.errors, kNothing)) << result.output << result.errors;
}

TEST_F(Results, KernelsAreCountedWhileTheyCompile) {
  const std::string compiler = folder_ / "c++";
  std::ofstream(compiler) << "#!/bin/sh\ncase \"$*\" in *--version*) ;; *) sleep 1.1 ;; esac\nexec " << GCOMP_HOST_COMPILER
                          << " \"$@\"\n";
  std::filesystem::permissions(compiler, std::filesystem::perms::owner_all);
  const CommandResult result =
      on_digits("train", {"--steps", "1", "--out", folder_ / "t.onnx", "--no-cache", "--threads", "1", "--compiler", compiler});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::regex line("compiling: kernels, ([0-9]+) of ([0-9]+)");
  std::vector<int> done;
  std::string all;
  for (auto at = std::sregex_iterator(result.errors.begin(), result.errors.end(), line); at != std::sregex_iterator(); ++at) {
    if (done.empty()) all = (*at)[2];
    if ((*at)[2] == all) done.push_back(std::stoi((*at)[1]));  // of the first program
  }
  ASSERT_GE(done.size(), 3u) << result.errors;
  EXPECT_EQ(done.front(), 0);
  EXPECT_EQ(std::to_string(done.back()), all);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end())) << result.errors;
}

TEST_F(Results, TheDoctorsStepTakesTime) {
  const CommandResult result = run_gcomp({"doctor"});
  EXPECT_TRUE(std::regex_search(result.output, std::regex("tiny network took [1-9][0-9.]* [mu]?s,"))) << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("CPU +[0-9]+ threads?, (AVX|NEON|SSE)"))) << result.output;
  EXPECT_FALSE(std::regex_search(result.output, kNothing)) << result.output;
}

TEST_F(Results, ThePlanOfASmallStepHasTimes) {
  const CommandResult result =
      run_gcomp({"compile", std::string(GCOMP_SOURCE_DIR) + "/examples/digits/digits.onnx", "--train", "--loss", "cross_entropy",
                 "--dim", "batch=2", "--target", "cuda:sm_90", "--emit", "plan"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("<1 ns"), std::string::npos) << result.output;
  EXPECT_FALSE(std::regex_search(result.output, std::regex(" 0 ns"))) << result.output;
}

}  // namespace
}  // namespace gcomp::test
