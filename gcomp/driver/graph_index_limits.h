// The limits of a model's index inputs, found in its graph.
#pragma once

#include <vector>

#include "gcomp/driver/index_limits.h"
#include "ir/graph.h"

namespace gcomp::driver {

/// The smallest limit of each integer input that reaches the indices of a gather through elementwise ops and views. A hint: what
/// lies on the way may change the values.
std::vector<IndexLimit> index_limits(const ir::Graph& graph);

}  // namespace gcomp::driver
