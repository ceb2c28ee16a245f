// What a reshape keeps together.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/shape.h"

namespace gcomp::ir {

/// Neighbouring axes on each side of a reshape that have equally many elements, as few as may be. Axes of one element are in none.
struct ReshapeRun {
  std::vector<std::size_t> from, to;
};
/// In order. Of shapes with equally many elements, but not without any.
std::vector<ReshapeRun> reshape_runs(const Shape& from, const Shape& to);

}  // namespace gcomp::ir
