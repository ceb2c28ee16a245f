// examples/cluster/train.sbatch as Slurm would run it, with mpirun in place of srun: asked to end, put into the queue again, and
// finished by another number of ranks, it comes to what one process trains.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ir/base/error.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/find_compiler.h"
#include "tests/drive/command.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::TemporaryDirectory;

void write_program(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << "#!/usr/bin/env bash\n" << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

TEST(ClusterRecipe, GoesOnWithAnotherNumberOfRanks) {
  try {
    runtime::comm::find_mpi();
  } catch (const Error& error) { GTEST_SKIP() << error.what(); }
  if (runtime::cpu::find_program("mpirun").empty()) GTEST_SKIP() << "there is no mpirun";
  const TemporaryDirectory folder;
  const std::string fixture = std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/cnn", run = folder / "run";
  const std::string flags = " --loss cross_entropy --batch 16 --steps 12000 --quiet";
  // A time limit that comes a moment after the run began: srun passes the signal on, as the batch system does.
  write_program(folder / "srun",
                "while [ \"${1:0:2}\" = -- ]; do shift; done\n"
                "mpirun --allow-run-as-root --oversubscribe --bind-to none -n \"$SLURM_NTASKS\" \"$@\" & job=$!\n"
                "if [ -n \"${LIMIT:-}\" ]; then\n"
                "  (until [ -e \"$OUT/config.json\" ]; do sleep 0.1; done; sleep \"$LIMIT\"; kill -USR1 $job) &\n"
                "fi\n"
                "wait $job\n");
  write_program(folder / "scontrol", "echo \"scontrol $*\"\n");
  const auto submit = [&](const std::string& environment) {
    const std::string log = folder / "log";
    const int status =
        std::system(concat("PATH='", folder.path().string(), "':$PATH MODEL=", fixture, ".onnx DATA=", fixture, ".npz OUT='", run,
                           "' GCOMP=", GCOMP_BINARY, " SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=1 ", environment, " '", GCOMP_SOURCE_DIR,
                           "/examples/cluster/train.sbatch'", flags, " > '", log, "' 2>&1")
                        .c_str());
    return std::pair(WEXITSTATUS(status), contents(log));
  };
  const auto [first, begun] = submit("SLURM_NTASKS=4 LIMIT=0.3");
  ASSERT_EQ(first, 0) << begun;
  ASSERT_NE(begun.find("interrupted by SIGUSR1"), std::string::npos) << "it was done before its time was up:\n" << begun;
  EXPECT_NE(begun.find("scontrol requeue 7"), std::string::npos) << begun;
  const auto [second, ended] = submit("SLURM_NTASKS=2");
  ASSERT_EQ(second, 0) << ended;
  EXPECT_EQ(ended.find("scontrol"), std::string::npos) << ended;
  const CommandResult alone =
      run_gcomp({"train", fixture + ".onnx", "--data", fixture + ".npz", "--loss", "cross_entropy", "--batch", "16", "--steps",
                 "12000", "--quiet", "--micro-batches", "8", "--out", folder / "alone.onnx"});
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  EXPECT_TRUE(contents(std::filesystem::path(run) / "last.onnx") == contents(folder / "alone.onnx"));
}

}  // namespace
}  // namespace gcomp::test
