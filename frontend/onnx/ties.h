// Parameters that a file holds twice: a tied matrix, the second time often transposed.
#pragma once

#include <map>

#include "frontend/onnx/origins.h"
#include "frontend/onnx/parameters.h"

namespace gcomp::frontend {

/// Makes views of one state of the initializers that the file says are one parameter and that hold its values, and of those that
/// hold equal values and that --tie names; reports equal values that train apart and of which the file says nothing.
/// `merged`: Source::merged.
void tie_equals(ParameterPlan& plan, const Initializers& initializers, const Origins& origins,
                const std::map<std::string, std::string>& merged, const ImportOptions& options);

}  // namespace gcomp::frontend
