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

/// A graph made for two numbers of rows. Nothing where both are one graph but for shapes that grow with the rows; else the origin
/// of a node, or a value's name, that is another: a number that was made of the number of rows, a branch that it chose.
std::optional<std::string> count_dependence(const ir::Graph& few, std::int64_t few_rows, const ir::Graph& more,
                                            std::int64_t more_rows);

}  // namespace gcomp::passes
