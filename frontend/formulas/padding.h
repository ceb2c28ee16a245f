// Padding by elements of the value itself.
#pragma once

#include <string_view>

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// `low` and `high` elements around one axis, which is not empty: "reflect" mirrors without repeating the edge, "edge" repeats it,
/// "wrap" goes on at the other end. Negative counts crop.
Var pad_axis(Var x, std::int64_t axis, std::int64_t low, std::int64_t high, std::string_view mode);

}  // namespace gcomp::frontend::formulas
