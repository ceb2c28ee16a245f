// Options for a CPU device that a test opens itself: GCOMP_ISA names the instruction set, as it does for the command.
#pragma once

#include <cstdlib>
#include <string>

#include "runtime/device.h"

namespace gcomp::test {

inline std::optional<runtime::InstructionSet> asked_instruction_set() {
  const char* name = std::getenv("GCOMP_ISA");
  return name && *name ? std::optional(runtime::parse_instruction_set(name)) : std::nullopt;
}

/// Where compiled kernels stay for the tests of another build: the folder that GCOMP_TEST_KERNELS names, else nowhere.
inline std::string kept_kernels() {
  const char* folder = std::getenv("GCOMP_TEST_KERNELS");
  return folder ? folder : "";
}

/// No cache but kept_kernels(); the instruction set is the one asked for.
inline runtime::DeviceOptions device_options(int threads = 0) {
  runtime::DeviceOptions options;
  options.threads = threads;
  options.cache_directory = kept_kernels();
  options.use_cache = !kept_kernels().empty();
  options.instruction_set = asked_instruction_set();
  return options;
}

}  // namespace gcomp::test
