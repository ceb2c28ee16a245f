// How the metrics of an evaluation are printed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/evaluation.h"

namespace gcomp::tools {

/// "test accuracy 99.4 %", "test top_k(k=5) 0.987" for the prefix "test "; a matrix has a line for each row after the first.
std::vector<std::string> metric_lines(const Evaluation& evaluation, std::string_view prefix = "test ");
/// Each under its text; matrices as lists of rows.
void add_metrics(nlohmann::json& object, const Evaluation& evaluation);

}  // namespace gcomp::tools
