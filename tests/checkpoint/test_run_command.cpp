// gcomp train --run-dir with a checkpoint after each step: resumed at any step, or killed at random moments and resumed each time,
// it ends with the bytes of the run that was not. GCOMP_KILLS=200 kills it so often.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/files/sha256.h"
#include "tests/checkpoint/training_course.h"
#include "tests/drive/command.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

constexpr int kCommandKills = 20;

int wanted_command_kills() {
  const char* text = std::getenv("GCOMP_KILLS");
  return text ? std::atoi(text) : kCommandKills;
}

class RunCommand : public testing::Test {
 protected:
  RunCommand() {
    write_course_model(model_);
    write_course_data(data_);
  }

  std::vector<std::string> training(const fs::path& run, int steps, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"train",
                                       model_,
                                       "--data",
                                       data_,
                                       "--loss",
                                       "cross_entropy",
                                       "--batch",
                                       "8",
                                       "--lr",
                                       "0.01",
                                       "--optimizer",
                                       "adamw",
                                       "--seed",
                                       "11",
                                       "--schedule",
                                       "cosine",
                                       "--warmup-steps",
                                       "3",
                                       "--ema",
                                       "0.9",
                                       "--clip-norm",
                                       "1",
                                       "--threads",
                                       "1",
                                       "--steps",
                                       std::to_string(steps),
                                       "--checkpoint-every",
                                       "1",
                                       "--run-dir",
                                       run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  void expect_trained(const fs::path& run, int steps, const std::vector<std::string>& more) const {
    const CommandResult result = run_gcomp(training(run, steps, more));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  /// Digests of all tensors of the last checkpoint.
  static nlohmann::json files_of_last(const fs::path& run) {
    const auto found = driver::find_latest(run / "checkpoints");
    return nlohmann::json::parse(contents(found->path / "manifest.json"))["files"];
  }

  TemporaryDirectory folder_;
  const std::string model_ = folder_ / "m.onnx", data_ = folder_ / "d.npz";
};

TEST_F(RunCommand, ResumedAtEveryStepItEndsWithTheBytesOfTheRunThatWasNot) {
  constexpr int kSteps = 30;
  const fs::path whole = folder_ / "whole", part = folder_ / "part";
  const std::vector<std::string> f16{"--precision", "f16", "--keep", "0"};
  expect_trained(whole, kSteps, f16);
  const std::string last = contents(whole / "last.onnx");
  const nlohmann::json files = files_of_last(whole);
  std::vector<std::string> resumed = f16;
  resumed.emplace_back("--resume");
  for (int step = 1; step < kSteps; ++step) {
    fs::remove_all(part);
    fs::copy(whole, part, fs::copy_options::recursive);
    fs::remove(part / "last.onnx");
    for (int later = step + 1; later <= kSteps; ++later) fs::remove_all(part / "checkpoints" / driver::checkpoint_name(later));
    expect_trained(part, kSteps, resumed);
    EXPECT_TRUE(contents(part / "last.onnx") == last) << "from step " << step;
    EXPECT_EQ(files_of_last(part), files) << "from step " << step;
  }
}

TEST_F(RunCommand, OfAnEarlierVersionThatHadFewerOptionsItGoesOn) {
  const fs::path whole = folder_ / "whole", part = folder_ / "part";
  expect_trained(whole, 8, {});
  expect_trained(part, 4, {});
  const auto newest = driver::find_latest(part / "checkpoints");
  nlohmann::json manifest = nlohmann::json::parse(contents(newest->path / "manifest.json"));
  nlohmann::json& config = manifest.at("config");
  for (const char* added : {"augment", "eval-augment", "map", "mix", "sample", "split", "stratify", "on-bad-sample"})
    ASSERT_EQ(config.erase(added), 1U) << added;
  config["data"] = data_;
  manifest["config_sha256"] = runtime::sha256(config.dump());
  const std::string text = manifest.dump();
  put(newest->path / "manifest.json", text);
  put(newest->path / "manifest.json.sha256", runtime::sha256(text) + "  manifest.json\n");
  expect_trained(part, 8, {"--resume", "--workers", "1"});
  EXPECT_TRUE(contents(part / "last.onnx") == contents(whole / "last.onnx"));
}

TEST_F(RunCommand, KilledAtRandomMomentsItEndsWithTheBytesOfTheRunThatWasNot) {
  constexpr int kSteps = 150;
  const fs::path whole = folder_ / "whole", run = folder_ / "run";
  const std::vector<std::string> options{"--keep", "2", "--resume"};
  expect_trained(whole, kSteps, options);
  const std::string last = contents(whole / "last.onnx");
  std::mt19937 random(14);
  const int wanted = wanted_command_kills();
  int kills = 0, after_steps = 0, ends = 0;
  std::int64_t before = 0;
  while (kills < wanted) {
    // Some before the checkpoint is read, most among steps.
    const std::string marker = kills % 5 == 0 ? "compiling" : "data:";
    const auto wait = static_cast<useconds_t>(random() % 400'000);
    const CommandResult result = run_gcomp_until(training(run, kSteps, options), marker, [&](pid_t child) {
      usleep(wait);
      kill(child, SIGKILL);
    });
    if (result.exit_code == 128 + SIGKILL) {
      ++kills;
      const auto found = driver::find_latest(run / "checkpoints");  // throws where there are some and none is whole
      const std::int64_t now = found ? found->manifest.run.step : 0;
      ASSERT_GE(now, before) << "after kill " << kills;
      after_steps += now > before;
      before = now;
      continue;
    }
    ASSERT_EQ(result.exit_code, 0) << "after " << kills << " kills: " << result.errors;
    ++ends;
    ASSERT_TRUE(contents(run / "last.onnx") == last) << "after " << kills << " kills";
    fs::remove_all(run);
    before = 0;
  }
  expect_trained(run, kSteps, options);
  EXPECT_TRUE(contents(run / "last.onnx") == last);
  EXPECT_GT(after_steps, 0) << "no kill came after a step: the test shows nothing";
  std::printf("%d kills, %d of them after new steps, %d ends between them\n", kills, after_steps, ends);
}

}  // namespace
}  // namespace gcomp::test
