// Runs gcomp as its users do: a process with arguments, what it wrote, and how it ended.
//
// GCOMP_TEST_BINARY names another gcomp than the one built here, GCOMP_TEST_DEVICE the device that it shall use and
// compile artifacts for (tools/gpu-suite).
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace gcomp::test {

struct CommandResult {
  int exit_code = -1;           ///< 128 + the signal where one ended it
  std::string output;           ///< stdout
  std::string errors;           ///< stderr
  std::int64_t peak_bytes = 0;  ///< the most memory that was resident at once
};

struct CommandOptions {
  std::vector<std::string> environment;  ///< more variables, as NAME=VALUE
  std::string limits;                    ///< shell commands that run before, such as "ulimit -f 1"
};

/// `arguments` follow the program's name.
CommandResult run_gcomp(std::vector<std::string> arguments, const CommandOptions& options = {});

/// The same; once `marker` has appeared on stderr, `action` is done with the process's id.
CommandResult run_gcomp_until(std::vector<std::string> arguments, const std::string& marker,
                              const std::function<void(pid_t)>& action, const CommandOptions& options = {});

/// The same, sent `signal` then.
CommandResult interrupt_gcomp(std::vector<std::string> arguments, const std::string& marker, int signal = SIGINT);

/// Whether GCOMP_TEST_DEVICE sends what trains elsewhere than to the CPU.
bool on_another_device();

}  // namespace gcomp::test
