// How a process learns that a launcher started it, how mpirun is started, and what is shown of what it says.
#include <gtest/gtest.h>

#include <map>

#include "ir/base/error.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/mpi_communicator.h"

namespace gcomp::runtime::comm {
namespace {

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Launch, ALauncherIsToldByItsVariables) {
  EXPECT_EQ(launched_by(environment({{"PATH", "/bin"}})), std::nullopt);
  EXPECT_EQ(
      launched_by(environment({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})),
      (Launched{"mpirun (Open MPI)", 3, 8, 4}));
  EXPECT_EQ(launched_by(environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})), (Launched{"mpirun (PMI)", 0, 2, 1}));
  EXPECT_EQ(launched_by(environment({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "16"}, {"PMIX_RANK", "1"}})),
            (Launched{"srun", 1, 16, 1}));
  EXPECT_EQ(launched_by(environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}})), std::nullopt)
      << "a program that a batch script starts by itself";
}

TEST(Launch, VariablesThatDoNotFitAreNamed) {
  const auto refusal = [](std::map<std::string, std::string> variables) -> std::string {
    try {
      launched_by(environment(std::move(variables)));
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(refusal({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}),
            "the launcher's variable PMI_RANK is 'x', wanted a whole number from 0 on");
  EXPECT_EQ(refusal({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), "the launcher says that this is rank 2 of 2");
  EXPECT_EQ(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}),
            "the launcher's variable PMI_SIZE is '0', wanted a whole number from 1 on");
}

TEST(Launch, MpirunIsAskedForWhatTheMachineTakes) {
  using Words = std::vector<std::string>;
  MpirunRequest request{.ranks = 2, .program = "/bin/gcomp", .arguments = {"train", "m.onnx", "--ranks", "2"}, .processors = 8};
  EXPECT_EQ(mpirun_command(request),
            (Words{"mpirun", "-n", "2", "--bind-to", "none", "/bin/gcomp", "train", "m.onnx", "--ranks", "2"}));
  request.is_root = true;
  request.processors = 1;
  request.arguments.clear();
  EXPECT_EQ(mpirun_command(request),
            (Words{"mpirun", "-n", "2", "--bind-to", "none", "--allow-run-as-root", "--oversubscribe", "/bin/gcomp"}));
}

std::string shown(const std::string& text) {
  MpirunReport report;
  std::string all, line;
  for (const char c : text) {
    if (c != '\n') line += c;
    else all += report.line(std::exchange(line, ""));
  }
  return all + report.end();
}

TEST(Launch, OfWhatMpirunSaysTheCausesAreLeft) {
  const std::string rule(74, '-');
  const std::string ended =
      rule + "\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n" + rule + "\n";
  EXPECT_EQ(shown("gcomp train: wrong\n" + ended + "more\n"), "gcomp train: wrong\nmore\n");
  EXPECT_EQ(
      shown(rule + "\nmpirun noticed that process rank 13 with PID 0 on node vm exited on signal 9 (Killed).\n" + rule + "\n"),
      "gcomp train: rank 13 exited on signal 9 (Killed); the others were ended\n");
  const std::string slots = "There are not enough slots available in the system\n";
  EXPECT_EQ(shown(rule + "\n" + slots + rule + "\nafter\n"), slots + "after\n");
  EXPECT_EQ(shown(rule + "\n" + slots), slots) << "a block without an end";
  EXPECT_EQ(shown("--help\n"), "--help\n");
}

TEST(Launch, APlugInThatIsMissingIsSaidWithPlaceAndCure) {
  try {
    open_mpi("/nowhere/libgcomp_mpi.so");
    ADD_FAILURE() << "there is none";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("/nowhere/libgcomp_mpi.so: there is no such file"), std::string::npos) << text;
    EXPECT_NE(text.find("libopenmpi-dev"), std::string::npos) << text;
  }
  EXPECT_THROW(find_mpi("/proc/self/exe"), DeviceError) << "no plug-in";
  EXPECT_EQ(mpi_plugin_candidates("given.so"), std::vector<std::filesystem::path>{"given.so"});
  EXPECT_GE(mpi_plugin_candidates("").size(), 3u);
}

}  // namespace
}  // namespace gcomp::runtime::comm
