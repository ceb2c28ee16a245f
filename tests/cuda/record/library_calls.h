// The calls of a library that keeps nothing else from call to call, made at the first one and reported at the end of the process.
#pragma once

#include <map>

#include "tests/cuda/record/calls.h"

namespace gcomp::emulated {

/// Defined by each library that uses calls(): its name in the report, and what it counts beside the calls.
std::string reported_name();
std::map<std::string, std::int64_t> reported_figures(const Calls& calls);

Calls& calls();

}  // namespace gcomp::emulated
