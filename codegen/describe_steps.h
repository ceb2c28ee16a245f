// A Program's steps as text: what they do, the least time that it takes, and how long it takes as it is written.
#pragma once

#include <span>
#include <string>

#include "codegen/estimate.h"

namespace gcomp::codegen {

/// The sums, a line for each family of steps, and one for each step: launches, flops, bytes, the time that `rates` allow, and the
/// estimate with what limits it. `costs` has one for each step.
std::string describe_steps(const runtime::Program& program, std::span<const StepCost> costs, const DeviceRates& rates,
                           const EstimateOptions& options = {});

}  // namespace gcomp::codegen
