// What each step of a program cost and moved: the table of `gcomp bench --profile`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct StepCost {
  std::string what;         ///< the kernel's name, or the library call with its sizes
  std::string origin;       ///< the IR node
  double microseconds = 0;  ///< of one run
  /// Every buffer that the step is given, once each: too much where it reads a few rows of a table.
  std::int64_t bytes = 0;
  std::int64_t flops = 0;  ///< of products and convolutions; 0 for kernels
};

/// Dearest first. `nanoseconds` holds each step's time summed over `runs` runs.
std::vector<StepCost> step_costs(const runtime::Program& program, std::span<const std::int64_t> nanoseconds, std::int64_t runs);

/// A line for each step on the console.
void report_step_costs(const Console& console, const std::vector<StepCost>& costs);
nlohmann::json to_json(const std::vector<StepCost>& costs);

}  // namespace gcomp::tools
