// What is written of a step and of an evaluation: the fields of a line of metrics.
#pragma once

#include <string_view>
#include <vector>

#include "gcomp/fit.h"
#include "runtime/metrics.h"

namespace gcomp::driver {

/// Both look at their arguments, which must outlive them.
std::vector<runtime::Metric> metrics_of_step(const FitStep& step);
/// `source` is what was evaluated.
std::vector<runtime::Metric> metrics_of_evaluation(const FitEvaluation& evaluation, std::string_view source);

}  // namespace gcomp::driver
