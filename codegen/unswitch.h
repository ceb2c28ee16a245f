// Loop unswitching and index set splitting: versions of a nest in which conditions are settled, since a test stands outside the
// loops, or since a loop runs over a piece of its axis. Text of a version stands in a sealed scope of the writer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// The same nest with `axis` restricted to [low, high) and renumbered from 0.
FlatNest restricted(const FlatNest& nest, int axis, std::int64_t low, std::int64_t high);
/// Positions at which some condition on `axis` alone changes, in ascending order, with 0 and the extent around them. Only those
/// two where there are more than a few: conditions are then tested for each element.
std::vector<std::int64_t> breakpoints(const FlatNest& nest, int axis);

/// The same nest where `condition` is known to hold, or not to.
FlatNest assuming(const FlatNest& nest, const ir::Condition& condition, bool holds);
/// Conditions that one kernel tests outside its loops, at most: each writes the loops twice.
inline constexpr int kMostUnswitched = 32;
/// A condition that does not vary over `inner` axes; none where there is none, or more than a few.
std::optional<ir::Condition> loop_invariant_condition(const FlatNest& nest, const std::vector<int>& inner);

/// Puts conditions on as few axes as say the same: i * 32 + j < 256 with j in [0, 32) becomes i < 8.
void coarsen_conditions(FlatNest& nest);

}  // namespace gcomp::codegen
