// What was trained is kept: after a signal, and where the place for it cannot be written any more.
#include <filesystem>
#include <regex>

#include "tests/drive/hanging_compiler.h"
#include "tests/drive/recorded_model.h"
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::put;
using runtime::test::TemporaryDirectory;

class LostWork : public testing::Test {
 protected:
  std::vector<std::string> training(const std::string& steps, const std::string& out, const std::vector<std::string>& more = {}) {
    const RecordedModel mlp = recorded_model("mlp");
    std::vector<std::string> arguments{"train",   mlp.model(), "--data",  mlp.data(), "--loss", "bce",
                                       "--batch", "64",        "--steps", steps,      "--out",  out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// The bytes of the model after so many steps.
  std::string trained(const std::string& steps) {
    const TemporaryDirectory folder;
    const CommandResult result = run_gcomp(training(steps, folder / "t.onnx"));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return contents(folder / "t.onnx");
  }
  static std::string found(const std::string& text, const std::string& pattern) {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(text, match, std::regex(pattern))) << "no " << pattern << " in: " << text;
    return match.empty() ? "" : match[1].str();
  }

  TemporaryDirectory folder_;
  const std::string out_ = folder_ / "trained.onnx";
};

TEST_F(LostWork, ASignalWritesTheModelAsTrainedSoFar) {
  const std::pair<int, const char*> signals[] = {
      {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}};
  for (const auto& [signal, name] : signals) {
    const CommandResult result =
        interrupt_gcomp(training("100000000", out_, {"--metrics", folder_ / "m.jsonl"}), "step 1/", signal);
    EXPECT_EQ(result.exit_code, 128 + signal) << result.errors;
    EXPECT_NE(result.errors.find(out_), std::string::npos) << result.errors;
    const std::string steps = found(result.errors, std::string("interrupted by ") + name + " after step ([0-9]+) of 100000000");
    EXPECT_TRUE(contents(out_) == trained(steps)) << name << ", step " << steps;
    const std::string metrics = contents(folder_ / "m.jsonl");
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(metrics, '\n')), std::stoul(steps));
  }
}

TEST_F(LostWork, ASignalWritesAnArtifactToo) {
  const std::string out = folder_ / "trained.gcx";
  const CommandResult result = interrupt_gcomp(training("100000000", out), "step 1/", SIGTERM);
  EXPECT_EQ(result.exit_code, 143) << result.errors;
  const std::string steps = found(result.errors, "after step ([0-9]+) of");
  ASSERT_EQ(run_gcomp({"train", out, "--data", recorded_model("mlp").data(), "--steps", "3", "--out", out_}).exit_code, 0);
  EXPECT_TRUE(contents(out_) == trained(std::to_string(std::stol(steps) + 3)));
}

TEST_F(LostWork, TheResultsSayThatItWasInterrupted) {
  const CommandResult result = interrupt_gcomp(training("100000000", out_, {"--json"}), "step 1/", SIGTERM);
  for (const char* part : {"\"interrupted\":\"SIGTERM\"", "\"exit_code\":143", "\"weights_sha256\""})
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
}

/// A compiler that hangs is ended, its children with it.
TEST_F(LostWork, ASignalWhileCompilingEndsAtOnceAndWritesNothing) {
  if (on_another_device()) GTEST_SKIP() << "no C++ compiler there";
  const HangingCompiler compiler(folder_.path());
  const auto end_it = [&](pid_t child) { compiler.end(child); };
  const CommandResult result = run_gcomp_until(training("10", out_, {"--compiler", compiler.path(), "--no-cache"}), "compiling",
                                               end_it, {.environment = {"TMPDIR=" + folder_.path().string()}, .limits = {}});
  EXPECT_EQ(result.exit_code, 143) << result.errors;
  EXPECT_NE(result.errors.find("interrupted by SIGTERM before the first step"), std::string::npos) << result.errors;
  EXPECT_FALSE(fs::exists(out_));
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().filename().string().find("gcomp-"), std::string::npos) << entry.path();
}

/// The folder of --out goes while the run is under way.
TEST_F(LostWork, AModelThatCannotBeWrittenGoesToTheNextPlace) {
  const fs::path aimed = folder_ / "aimed", temporary = folder_ / "tmp", current = folder_ / "current";
  const std::string whole = trained("2000");
  const auto run = [&](const std::string& tmpdir) {
    fs::create_directories(aimed);
    fs::create_directories(current);
    return run_gcomp_until(training("2000", aimed / "t.onnx"), "step 1/", [&](pid_t) { fs::remove_all(aimed); },
                           {.environment = {"TMPDIR=" + tmpdir}, .limits = "cd '" + current.string() + "'"});
  };
  fs::create_directories(temporary);
  CommandResult result = run(temporary);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::invalid)) << result.errors;
  EXPECT_NE(result.errors.find("cannot write '" + (aimed / "t.onnx").string()), std::string::npos) << result.errors;
  std::string rescued = found(result.errors, "what was trained is in '([^']+)'");
  EXPECT_EQ(fs::path(rescued).parent_path(), temporary);
  EXPECT_TRUE(contents(rescued) == whole);
  EXPECT_NE(result.output.find(rescued), std::string::npos) << result.output;

  fs::remove_all(temporary);
  result = run(temporary);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::invalid)) << result.errors;
  rescued = found(result.errors, "what was trained is in '([^']+)'");
  EXPECT_EQ(fs::path(rescued).parent_path(), fs::canonical(current));
  EXPECT_TRUE(contents(rescued) == whole);
}

TEST_F(LostWork, WhereNoPlaceTakesTheModelTheRunsFilesAreNamed) {
  const fs::path aimed = folder_ / "aimed", current = folder_ / "current", run = folder_ / "run";
  const std::vector<std::string> arguments =
      training("2000", aimed / "t.onnx", {"--run-dir", run, "--checkpoint-every", "500", "--overwrite"});
  for (const bool last_is_written : {true, false}) {
    fs::create_directories(aimed);
    fs::create_directories(current);
    const auto spoil = [&](pid_t) {
      fs::remove_all(aimed);
      fs::remove_all(current);
      if (!last_is_written) fs::create_directories(run / "last.onnx");
    };
    const CommandResult result = run_gcomp_until(arguments, "step 1/", spoil,
                                                 {.environment = {"TMPDIR=/nowhere"}, .limits = "cd '" + current.string() + "'"});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::invalid)) << result.errors;
    const std::string kept = last_is_written ? "what was trained is in '" + (run / "last.onnx").string() + "'"
                                             : "the newest checkpoint is '" + (run / "checkpoints/step-00002000").string() + "'";
    EXPECT_NE(result.errors.find(kept), std::string::npos) << "no " << kept << " in: " << result.errors;
    EXPECT_EQ(result.errors.find("lost"), std::string::npos) << result.errors;
  }
}

TEST_F(LostWork, MetricsOnAFullDiskDoNotEndTheRun) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const CommandResult result = run_gcomp(training("20", out_, {"--metrics", "/dev/full"}));
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::invalid)) << result.errors;
  const std::string why = "cannot write '/dev/full': No space left on device";
  const std::size_t first = result.errors.find(why), second = result.errors.rfind(why);
  EXPECT_NE(first, std::string::npos) << result.errors;
  EXPECT_NE(first, second) << "not said again at the end: " << result.errors;
  EXPECT_EQ(result.errors.find(why, first + 1), second) << "said more than twice: " << result.errors;
  EXPECT_TRUE(contents(out_) == trained("20"));
}

}  // namespace
}  // namespace gcomp::test
