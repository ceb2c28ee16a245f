// What every model must satisfy before anything looks inside: the checks that later code relies on.
#pragma once

#include "frontend/onnx/source.h"

namespace gcomp::frontend {

/// Newest version of ai.onnx whose operators are known.
inline constexpr std::int64_t kNewestOpset = 28;

/// Throws UserError unless: the graph exists, every name that is read was made before (so there are no cycles), every name is
/// made once, subgraphs nest at most 16 deep, local functions do not call themselves, and the opsets are known.
void validate(const Source& source);

}  // namespace gcomp::frontend
