// gcomp train in several processes over MPI: the files that one process writes, runs that other numbers of ranks go on with, and
// ranks that fail.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "ir/base/error.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/find_compiler.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::TemporaryDirectory;
using Words = std::vector<std::string>;

std::string ranked_fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Why there can be no ranks here, or "".
std::string why_no_ranks() {
  if (on_another_device()) return "ranks are of the CPU";
  try {
    runtime::comm::find_mpi();
  } catch (const Error& error) { return error.what(); }
  return runtime::cpu::find_program("mpirun").empty() ? "there is no mpirun" : "";
}

class RanksCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ranks(); !why.empty()) GTEST_SKIP() << why;
  }

  /// Of 16 rows a step, in eight micro-batches unless `more` says otherwise.
  Words training(const std::string& steps, const Words& more) {
    return joined({"train", ranked_fixture("cnn.onnx"), "--data", ranked_fixture("cnn.npz"), "--loss", "cross_entropy", "--batch",
                   "16", "--threads", "1", "--quiet", "--steps", steps},
                  more);
  }
  CommandResult train(const std::string& steps, const Words& more) { return run_gcomp(training(steps, more)); }

  TemporaryDirectory folder_;
};

TEST_F(RanksCommand, WriteWhatOneProcessWrites) {
  const std::vector<Words> cases{{"--optimizer", "lamb", "--clip-norm", "1"},
                                 {"--optimizer", "sgd", "--momentum", "0.9", "--precision", "bf16"},
                                 {"--optimizer", "adamw", "--precision", "f16", "--ema", "0.9"}};
  for (const Words& flags : cases) {
    const std::string one = folder_ / "one.onnx";
    ASSERT_EQ(train("12", joined(flags, {"--micro-batches", "8", "--out", one})).exit_code, 0);
    for (const char* ranks : {"1", "2", "4", "8"}) {
      const std::string out = folder_ / (std::string(ranks) + ".onnx");
      const CommandResult result = train("12", joined(flags, {"--ranks", ranks, "--out", out}));
      ASSERT_EQ(result.exit_code, 0) << result.errors;
      EXPECT_TRUE(contents(out) == contents(one)) << ranks << " ranks, " << flags[1];
    }
  }
}

/// The first rank writes parameters and averages of which it holds a share.
TEST_F(RanksCommand, WriteWhatOneProcessWritesHoweverMuchIsShared) {
  const auto written = [&](const Words& flags) {
    const std::string out = folder_ / "t.onnx", average = folder_ / "ema.onnx";
    const CommandResult result = train("8", joined(flags, {"--ema", "0.9", "--out", out, "--out-ema", average}));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return std::pair(contents(out), contents(average));
  };
  const auto one = written({"--micro-batches", "8"});
  EXPECT_NE(one.first, one.second);
  for (const char* zero : {"0", "2", "3"}) EXPECT_TRUE(written({"--ranks", "4", "--zero", zero}) == one) << "--zero " << zero;
}

/// Statistics of the whole batch go between processes in the middle of a step.
TEST_F(RanksCommand, WriteWhatOneProcessWritesWithStatisticsOfTheBatch) {
  const auto bytes = [&](const Words& more) {
    const CommandResult result = run_gcomp(
        joined({"train", ranked_fixture("bn.onnx"), "--data", ranked_fixture("bn.npz"), "--loss", "cross_entropy", "--batch", "16",
                "--threads", "1", "--quiet", "--steps", "8", "--sync-batchnorm", "--out", folder_ / "t.onnx"},
               more));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return contents(folder_ / "t.onnx");
  };
  const std::string one = bytes({"--micro-batches", "8"});
  for (const char* ranks : {"2", "4", "8"}) EXPECT_TRUE(bytes({"--ranks", ranks}) == one) << ranks << " ranks";
}

/// Exchanges of many small buckets beside what is computed, and by themselves.
TEST_F(RanksCommand, WriteTheSameWhetherExchangesOverlapOrNot) {
  const std::string one = folder_ / "one.onnx", out = folder_ / "ranks.onnx";
  ASSERT_EQ(train("8", {"--micro-batches", "8", "--out", one}).exit_code, 0);
  for (const Words& flags :
       {Words{"--ranks", "2", "--overlap"}, Words{"--ranks", "4", "--overlap"}, Words{"--ranks", "4", "--no-overlap"}}) {
    const CommandResult result = train("8", joined(flags, {"--bucket-mib", "0.002", "--out", out}));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_TRUE(contents(out) == contents(one)) << flags[1] << " ranks" << (flags.size() > 2 ? ", without overlap" : "");
  }
}

/// The first rank alone writes and speaks.
TEST_F(RanksCommand, SpeakOnce) {
  const CommandResult result = train("4", {"--ranks", "4", "--eval-data", ranked_fixture("cnn.npz"), "--metrics",
                                           folder_ / "m.jsonl", "--out", folder_ / "t.onnx"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.output.find("trained 4 steps"), result.output.rfind("trained 4 steps")) << result.output;
  const std::string metrics = contents(folder_ / "m.jsonl");
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 5) << "four steps and an evaluation\n" << metrics;
}

/// Process ids of the ranks that were started with this variable.
std::vector<pid_t> ranks_with(const std::string& variable) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(variable) != environment.npos && environment.find("OMPI_COMM_WORLD_RANK=") != environment.npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

int wanted_rank_kills() {
  const char* given = std::getenv("GCOMP_KILLS");
  return given ? std::max(1, std::atoi(given)) : 3;
}

/// Eight ranks, of which one is killed, then four, then two, and so on: the bytes of the run that nobody killed.
TEST_F(RanksCommand, GoOnAsOtherNumbersAfterAKill) {
  const Words flags{"--optimizer", "adamw", "--checkpoint-every", "20"};
  const std::string steps = "1500";
  ASSERT_EQ(train(steps, joined(flags, {"--micro-batches", "8", "--run-dir", folder_ / "whole"})).exit_code, 0);
  const std::string run = folder_ / "run", mark = "GCOMP_TEST_RUN=" + run;
  const char* const numbers[] = {"8", "4", "2"};
  std::mt19937 random(16);
  int kills = 0;
  for (int turn = 0; kills < wanted_rank_kills(); ++turn) {
    const char* ranks = numbers[turn % 3];
    std::size_t killed = 0;
    std::thread killer([&] {
      const auto begin = std::chrono::steady_clock::now();
      const auto waited = [&] { return std::chrono::steady_clock::now() - begin; };
      std::vector<pid_t> processes;
      while (processes.size() < std::stoul(ranks) && waited() < std::chrono::seconds(20)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        processes = ranks_with(mark);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200 + random() % 600));
      if (processes.empty()) return;
      killed = random() % processes.size();
      kill(processes[killed], SIGKILL);
    });
    const auto begin = std::chrono::steady_clock::now();
    const CommandResult result = run_gcomp(training(steps, joined(flags, {"--ranks", ranks, "--run-dir", run, "--resume"})),
                                           {.environment = {mark}, .limits = {}});
    killer.join();
    if (result.exit_code == 0) {
      ASSERT_TRUE(contents(std::filesystem::path(run) / "last.onnx") == contents(folder_ / "whole/last.onnx")) << "after " << kills;
      std::filesystem::remove_all(run);
      continue;
    }
    ++kills;
    EXPECT_EQ(result.exit_code, 137) << result.errors;
    EXPECT_NE(result.errors.find("exited on signal 9 (Killed); the others were ended"), std::string::npos) << result.errors;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30 + 20)) << "20 of them at the most to start";
    for (int wait = 0; wait < 200 && !ranks_with(mark).empty(); ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(ranks_with(mark).empty()) << "ranks are left behind";
  }
  // One process takes the eight from the run, unless all of its ranks were killed before they had begun it.
  Words last = joined(flags, {"--run-dir", run, "--resume"});
  if (!std::filesystem::exists(std::filesystem::path(run) / "config.json")) last = joined(last, {"--micro-batches", "8"});
  const CommandResult rest = train(steps, last);
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_TRUE(contents(std::filesystem::path(run) / "last.onnx") == contents(folder_ / "whole/last.onnx"));
}

/// Open MPI's mpirun was seen to stop for good in its own end, all ranks gone: then gcomp ends it, with the exit code of what
/// failed.
TEST_F(RanksCommand, EndAnMpirunThatWaitsForNobody) {
  const std::string rule(30, '-');
  const auto run_with = [&](const std::string& says) {
    const std::string fake = folder_ / "mpirun";
    std::ofstream(fake) << "#!/bin/bash\nsleep 3 & wait\ncat >&2 <<'END'\n" << says << "END\nexec 9<> <(:)\nread -u 9\n";
    std::filesystem::permissions(fake, std::filesystem::perms::owner_all);
    const Words arguments = training("4", {"--ranks", "2", "--out", folder_ / "out.onnx"});
    return run_gcomp(arguments,
                     {.environment = {concat("PATH=", folder_.path().string(), ":", std::getenv("PATH"))}, .limits = {}});
  };
  const CommandResult killed =
      run_with(rule + "\nmpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n" + rule + "\n");
  EXPECT_EQ(killed.exit_code, 137) << killed.errors;
  EXPECT_EQ(killed.errors, "gcomp train: rank 1 exited on signal 9 (Killed); the others were ended\n");
  const CommandResult unknown = run_with("");
  EXPECT_EQ(unknown.exit_code, 1) << "nothing says that all ended well";
  EXPECT_NE(unknown.errors.find("has not said how all of them ended"), std::string::npos) << unknown.errors;
}

/// What owners of parameters hold is kept, and given to other owners.
TEST_F(RanksCommand, GoOnWithOtherOwners) {
  for (const char* optimizer : {"muon(lr=0.01)", "lamb(lr=0.01)"}) {
    SCOPED_TRACE(optimizer);
    const Words flags{"--optimizer", optimizer, "--ema", "0.9", "--checkpoint-every", "3"};
    const std::string name = std::string(optimizer).substr(0, 4), whole = folder_ / (name + "_whole"), run = folder_ / name;
    ASSERT_EQ(train("12", joined(flags, {"--micro-batches", "8", "--run-dir", whole, "--out-ema", whole + ".onnx"})).exit_code, 0);
    const std::pair<const char*, const char*> parts[] = {{"3", "8"}, {"6", "2"}, {"9", "4"}};
    for (const auto& [steps, ranks] : parts) {
      const CommandResult result = train(steps, joined(flags, {"--ranks", ranks, "--run-dir", run, "--resume"}));
      ASSERT_EQ(result.exit_code, 0) << result.errors;
    }
    const CommandResult result = train("12", joined(flags, {"--run-dir", run, "--resume", "--out-ema", run + ".onnx"}));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_TRUE(contents(run + "/last.onnx") == contents(whole + "/last.onnx"));
    EXPECT_TRUE(contents(run + ".onnx") == contents(whole + ".onnx")) << "averages";
  }
}

TEST_F(RanksCommand, EndTogetherAfterASignal) {
  const std::string run = folder_ / "run";
  Words words = training("100000000", {"--ranks", "2", "--run-dir", run, "--checkpoint-every", "100000"});
  std::erase(words, "--quiet");
  const CommandResult result = interrupt_gcomp(words, "step 1/", SIGINT);
  EXPECT_EQ(result.exit_code, 75) << result.errors;
  EXPECT_NE(result.errors.find("to go on: "), std::string::npos) << result.errors;
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(run) / "last.onnx"));
}

/// mpirun passes on SIGUSR1 alone: the exit code and the words are of what came.
TEST_F(RanksCommand, EndByTheSignalThatCame) {
  Words words = training("100000000", {"--ranks", "2", "--json", "--out", folder_ / "t.onnx"});
  std::erase(words, "--quiet");
  const CommandResult result = interrupt_gcomp(words, "step 1/", SIGTERM);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.errors;
  EXPECT_NE(result.errors.find("interrupted by SIGTERM after step "), std::string::npos) << result.errors;
  EXPECT_NE(result.output.find("\"interrupted\":\"SIGTERM\""), std::string::npos) << result.output;
}

/// One line that says where, what was found and what was wanted, and no rank that waits.
TEST_F(RanksCommand, WhatDoesNotFitIsSaidOnce) {
  const std::string out = folder_ / "t.onnx";
  const auto expect = [&](const Words& flags, int code, const std::string& message) {
    SCOPED_TRACE(message);
    const CommandResult result = train("4", joined(flags, {"--out", out}));
    EXPECT_EQ(result.exit_code, code) << result.errors;
    EXPECT_NE(result.errors.find(message), std::string::npos) << result.errors;
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  expect({"--ranks", "3"}, 2, "3 ranks share 8 micro-batches: wanted 1, 2, 4, 8 ranks");
  expect({"--ranks", "2", "--micro-batches", "3"}, 2, "--micro-batches 3: a batch of 16 rows is not cut into 3 equal parts");
  expect({"--ranks", "0x2"}, 2, "--ranks");
  expect({"--ranks", "2", "--distributed", "none"}, 2,
         "--distributed none: one process trains alone, and --ranks 2 asks for several");
  expect({"--distributed", "nccl"}, 2, "--distributed nccl: wanted auto, mpi or none");
  expect({"--ranks", "2", "--mpi-plugin", "/nowhere.so"}, 6, "/nowhere.so: there is no such file");
  expect({"--ranks", "2", "--label", "x"}, 2, "unknown option --label");
  expect({"--ranks", "2", "--eval-data", "/nowhere.npz"}, 3, "'/nowhere.npz' does not exist");
  const CommandResult full = train("4", {"--ranks", "2", "--out", "/nowhere/t.onnx"});
  EXPECT_EQ(full.exit_code, 3) << full.errors;
  EXPECT_NE(full.errors.find("rank 0 of 2 ("), std::string::npos) << full.errors;
  EXPECT_NE(full.errors.find("): cannot write '/nowhere/t.onnx': there is no directory '/nowhere'\n"), std::string::npos)
      << full.errors;
  const CommandResult artifact = train("4", {"--ranks", "2", "--out", folder_ / "t.gcx"});
  EXPECT_EQ(artifact.exit_code, 2) << artifact.errors;
  EXPECT_NE(artifact.errors.find("a .gcx would hold the step of 2 ranks"), std::string::npos) << artifact.errors;
}

}  // namespace
}  // namespace gcomp::test
