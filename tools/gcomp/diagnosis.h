// What gcomp finds of a machine: drivers, GPUs, libraries, compiler, cache, each with the cure where something is wrong.
#pragma once

#include <string>
#include <vector>

#include "runtime/cuda/libraries.h"
#include "runtime/device.h"

namespace gcomp::tools {

enum class Health : std::uint8_t {
  good,
  absent,  ///< not there, and not needed for what works without it
  bad
};

struct Finding {
  std::string name;  ///< "NVRTC"
  Health health = Health::good;
  std::string detail;  ///< version and path, or what is wrong
  std::string cure;    ///< what to do; "" where nothing needs doing
  std::vector<runtime::cuda::LibraryCandidate> rejected = {};
};

struct Diagnosis {
  std::vector<Finding> findings;
  bool cpu_trains = false, cuda_trains = false;  ///< a training step ran
};

/// Looks at everything and runs one tiny training step on the CPU and, where there is a GPU, on that. Throws nothing that a machine
/// can cause.
Diagnosis diagnose(const runtime::DeviceOptions& options);

}  // namespace gcomp::tools
