// What each step of a program took and did: the table of `gcomp bench --profile`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "codegen/step_cost.h"
#include "runtime/program.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct ProfiledStep {
  std::string what;             ///< the kernel's name, or the library call with its sizes
  std::string origin;           ///< the IR node
  double microseconds = 0;      ///< of one run
  codegen::StepCost cost = {};  ///< what it had to do
  bool product = false;         ///< a matmul or convolution, which a library may compute
};

/// What was asked of the device that decides which kernels ran.
struct ProfiledDevice {
  bool tf32 = false, prefer_cudnn = false;
};

/// Dearest first. `costs` and `nanoseconds` have an entry for each step; the latter are sums over `runs` runs.
std::vector<ProfiledStep> profile_of(const runtime::Program& program, std::span<const codegen::StepCost> costs,
                                     std::span<const std::int64_t> nanoseconds, std::int64_t runs, const ProfiledDevice& device);

/// A line of results for each step: its time, its share, and FLOP/s of products or bytes a second of kernels.
void report_profile(const Console& console, const std::vector<ProfiledStep>& profile);
nlohmann::json to_json(const std::vector<ProfiledStep>& profile);

}  // namespace gcomp::tools
