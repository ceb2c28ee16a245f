// gcomp train in several processes on GPUs that exchange by NCCL: the file that one process writes, whatever order devices and
// exchanges take, and one error where something fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "ir/base/error.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/find_compiler.h"
#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::put;
using Words = std::vector<std::string>;

std::string why_no_cuda_ranks() {
  if (on_real_device()) return "the ranks' GPUs are emulated here";
  try {
    runtime::comm::find_mpi();
  } catch (const Error& error) { return error.what(); }
  return runtime::cpu::find_program("mpirun").empty() ? "there is no mpirun" : "";
}

struct RankedCase {
  std::string model, precision;
  Words optimizer;
  Words clipping = {};
  std::vector<int> ranks = {};
  std::string steps = "2", device = "cuda";
};

/// Eight processes at once, of eight GPUs.
CudaSettings eight_gpus(std::map<std::string, std::string> more = {}) {
  more.emplace("GPUS", "8");
  return {.emulated = std::move(more), .environment = {}};
}

class CudaRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_cuda_ranks(); !why.empty()) GTEST_SKIP() << why;
  }

  /// Two steps of the model's data by the case's options, in eight micro-batches.
  CudaRun train(const RankedCase& what, const Words& more, const CudaSettings& settings = eight_gpus()) {
    const RecordedModel model = recorded_model(what.model);
    Words words{"train",      model.model(), "--data",
                model.data(), "--loss",      recipe_of(model).loss,
                "--batch",    "8",           "--steps",
                what.steps,   "--precision", what.precision,
                "--device",   what.device,   "--threads",
                "1",          "--quiet",     "--micro-batches",
                "8",          "--out",       folder_ / "trained.onnx"};
    for (const Words* part : {&what.optimizer, &what.clipping, &more}) words.insert(words.end(), part->begin(), part->end());
    return folder_.run(std::move(words), settings);
  }
  CudaRun train_mlp(const Words& more, const CudaSettings& settings, const std::string& steps = "2",
                    const std::string& device = "cuda") {
    const RankedCase mlp{
        .model = "mlp", .precision = "f32", .optimizer = {"--optimizer", "adamw"}, .steps = steps, .device = device};
    return train(mlp, more, settings);
  }
  std::string trained() const { return contents(folder_ / "trained.onnx"); }

  void expect_no_leaks(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const CudaRun reports = folder_.reports_of_rank(rank);
      EXPECT_FALSE(reports.nccl.is_null()) << "rank " << rank << " does not exchange by NCCL";
      EXPECT_EQ(leaks(reports), (std::map<std::string, std::int64_t>())) << "rank " << rank;
    }
  }

  /// The bytes of one process, with the disorder that the emulation knows.
  void expect_bytes_of_one(const RankedCase& what) {
    SCOPED_TRACE(what.model + " " + what.precision + " " + what.optimizer[1]);
    const CudaRun one = train(what, {});
    ASSERT_EQ(one.result.exit_code, 0) << one.result.errors;
    const std::string wanted = trained();
    int seed = 0;
    for (const int ranks : what.ranks) {
      const bool delayed = ++seed % 2 == 1;
      std::map<std::string, std::string> disorder{{"NCCL_DISORDER", std::to_string(seed)}};
      if (delayed) disorder.emplace("ORDER", "delayed");
      std::filesystem::remove(folder_ / "trained.onnx");
      const CudaRun run = train(what, {"--ranks", std::to_string(ranks)}, eight_gpus(disorder));
      ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
      EXPECT_TRUE(trained() == wanted) << ranks << " ranks" << (delayed ? ", delayed" : "");
      if (ranks > 1) expect_no_leaks(ranks);
    }
  }

  /// One line of the command's, and none of its processes left.
  void expect_one_error(const CudaRun& run, int code, const std::string& message) {
    const CommandResult& result = run.result;
    EXPECT_EQ(result.exit_code, code) << result.errors;
    EXPECT_NE(result.errors.find(message), std::string::npos) << "no '" << message << "' in: " << result.errors;
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = result.errors.find("gcomp train: ", at)) != result.errors.npos; ++at) ++lines;
    EXPECT_EQ(lines, 1u) << result.errors;
    EXPECT_EQ(result.errors.find("internal error, a fault"), std::string::npos) << result.errors;
    for (int wait = 0; wait < 100 && processes_left() > 0; ++wait) usleep(50'000);
    EXPECT_EQ(processes_left(), 0);
  }
  /// Those whose reports would go to this test's folder.
  int processes_left() const {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != name.npos || std::stoi(name) == getpid()) continue;
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      found += environment.find("XDG_CACHE_HOME=" + (folder_ / "cache").string()) != environment.npos;
    }
    return found;
  }

  CudaFolder folder_;
};

/// Each value of each option at least once; all with all where GCOMP_ALL_RANKS is set.
std::vector<RankedCase> ranked_cases() {
  const Words adamw{"--optimizer", "adamw"}, sgd{"--optimizer", "sgd", "--momentum", "0.9"}, lamb{"--optimizer", "lamb"},
      muon{"--optimizer", "muon"}, clipped{"--clip-norm", "0.5"};
  if (!std::getenv("GCOMP_ALL_RANKS"))
    return {{"mlp", "f16", adamw, clipped, {1, 2, 4, 8}},
            {"mnist_cnn", "bf16", sgd, {}, {2}},
            {"resnet_tiny", "f32", lamb, clipped, {4}},
            {"gpt_tiny", "f32", muon, {}, {2}},
            {"bert_tiny", "bf16", adamw, clipped, {4}}};
  std::vector<RankedCase> all;
  for (const char* model : {"mlp", "mnist_cnn", "resnet_tiny", "gpt_tiny", "bert_tiny"})
    for (const char* precision : {"f32", "bf16", "f16"})
      for (const Words& optimizer : {adamw, sgd, lamb, muon})
        for (const Words& clipping : {Words{}, clipped}) all.push_back({model, precision, optimizer, clipping, {1, 2, 4, 8}});
  return all;
}

TEST_F(CudaRanks, WriteWhatOneProcessWrites) {
  const std::vector<RecordedModel> known = recorded_models();
  for (const RankedCase& what : ranked_cases()) {
    if (std::ranges::none_of(known, [&](const RecordedModel& model) { return model.name == what.model; })) {
      std::printf("%s is not recorded here\n", what.model.c_str());
      continue;
    }
    expect_bytes_of_one(what);
  }
}

TEST_F(CudaRanks, AreCapturedInGraphsAndWaitForNothingElse) {
  ASSERT_EQ(train_mlp({"--ranks", "2"}, eight_gpus(), "6").result.exit_code, 0);
  const std::string usual = trained();
  for (int rank = 0; rank < 2; ++rank) {
    const CudaRun reports = folder_.reports_of_rank(rank);
    EXPECT_GT(reports.nccl.at("counts").at("exchange"), 6);
    const auto& intervals = reports.driver.at("intervals");
    for (std::size_t i = intervals.size() / 2; i < intervals.size(); ++i)
      for (const char* none : {"cuLaunchKernel", "library work", "cuMemAlloc_v2", "cuStreamSynchronize", "cuEventSynchronize"})
        EXPECT_EQ(intervals[i].at("counts").value(none, 0), 0) << "interval " << i << ": " << none;
  }
  ASSERT_EQ(train_mlp({"--ranks", "2", "--check-steps"}, eight_gpus(), "6").result.exit_code, 0);
  EXPECT_TRUE(trained() == usual) << "step by step";
}

TEST_F(CudaRanks, AFailureIsSaidOnceByTheRankThatFailed) {
  put(folder_ / "trained.onnx", "old contents");
  struct Failure {
    const char *what, *rank;
    int code;
    const char* message;
  };
  for (const Failure& f :
       {Failure{"exchange:5:3", "1", 6, "rank 1 of 2 ("}, Failure{"kernel:20:719", "1", 6, "CUDA_ERROR_LAUNCH_FAILED"},
        Failure{"exchange:5:-9", "1", 137, "rank 1 exited on signal 9 (Killed); the others were ended"},
        Failure{"ncclCommInitRank:1:2", "1", 6, "): ncclCommInitRank gave ncclSystemError (2)"},
        Failure{"ncclGetUniqueId:1:2", "0", 6, "): ncclGetUniqueId gave ncclSystemError (2)"},
        Failure{"ncclGroupEnd:1:3", "1", 6, "): a first exchange between the ranks: ncclGroupEnd gave"},
        Failure{"ncclAllGather:2:3", "0", 6, "exchange: ncclAllGather gave ncclInternalError (3)"},
        Failure{"ncclCommGetAsyncError:4:3", "1", 6, "rank 1 of 2 ("}}) {
    SCOPED_TRACE(f.what);
    const CudaRun run = train_mlp({"--ranks", "2"}, eight_gpus({{"FAIL", f.what}, {"FAIL_RANK", f.rank}}));
    expect_one_error(run, f.code, f.message);
    EXPECT_NE(run.result.errors.find(concat("rank ", f.rank)), std::string::npos) << run.result.errors;
    EXPECT_TRUE(trained() == "old contents");
  }
}

TEST_F(CudaRanks, WhatDoesNotFitIsSaidOnce) {
  put(folder_ / "trained.onnx", "old contents");
  const Words two{"--ranks", "2"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), two.begin(), two.end());
    return more;
  };
  expect_one_error(train_mlp(with({"--library", "nccl=/nowhere"}), eight_gpus()), 6, "NCCL was not found; tried /nowhere");
  expect_one_error(train_mlp(with({"--library", "nccl=" GCOMP_EMULATED_LIBRARIES}), eight_gpus({{"NCCL", "2.8"}})), 6,
                   "it is version 2.8.0, wanted 2.13.0 or newer");
  expect_one_error(train_mlp(two, eight_gpus({{"GPUS", "1"}})), 6,
                   "ranks 0 and 1 of 2 have both taken GPU cuda:0 (Emulated GPU, GPU-e0e0e0e0-");
  expect_one_error(train_mlp({"--ranks", "4"}, {.emulated = {{"GPUS", "3"}}, .environment = {}}), 6,
                   "start no more ranks on a machine than it has GPUs, or use --device cpu");
  expect_one_error(train_mlp(two, eight_gpus(), "2", "cuda:1"), 6, "leave the number out of --device cuda:N");
  EXPECT_TRUE(trained() == "old contents");
}

/// Without NCCL the ranks go on the CPU, where nobody asked for GPUs, and the device's line says why.
TEST_F(CudaRanks, WithoutNcclAutoTakesTheCpu) {
  const RecordedModel model = recorded_model("mlp");
  const auto train_auto = [&](const Words& more) {
    Words words{"train",   model.model(), "--data",  model.data(), "--loss",    "bce", "--batch", "8",
                "--steps", "2",           "--ranks", "2",          "--threads", "1",   "--out",   folder_ / "trained.onnx"};
    words.insert(words.end(), more.begin(), more.end());
    return folder_.run(words, eight_gpus()).result;
  };
  const CommandResult with = train_auto({}), without = train_auto({"--library", "nccl=/nowhere"});
  EXPECT_EQ(with.exit_code, 0) << with.errors;
  EXPECT_NE(with.errors.find("device: cuda:0"), std::string::npos) << with.errors;
  EXPECT_NE(with.errors.find("NCCL 2.28.0 to 2 ranks"), std::string::npos) << with.errors;
  EXPECT_EQ(without.exit_code, 0) << without.errors;
  EXPECT_NE(without.errors.find("device: cpu"), std::string::npos) << without.errors;
  EXPECT_NE(without.errors.find("(cpu: NCCL was not found)"), std::string::npos) << without.errors;
}

}  // namespace
}  // namespace gcomp::test
