// Whether the rows of a batch can be computed apart: an answer about a graph, which stays as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/graph.h"

namespace gcomp::passes {

/// Rows are the first dimension of the inputs and outputs that have `rows` there. Nothing where row r of each such output is
/// proven to be one function, the same for each r, of row r of the inputs; else the origin of a node for which that is not so:
/// a sum over rows, a step of a recurrence along them, a position that counts them. For one row there is nothing to see: throws
/// InternalError.
std::optional<std::string> row_dependence(const ir::Graph& graph, std::int64_t rows);

}  // namespace gcomp::passes
