// Reading a tensor at points between its elements, which values decide: a gather of each point's neighbours and a weighted sum.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// One element that a point reads along an axis.
struct PointTap {
  Var at;      ///< i64 [m, points], within the axis
  Var weight;  ///< of floats, the same shape; empty for 1
};
/// What points read along one axis.
using PointTaps = std::vector<PointTap>;

/// The two neighbours of `position` [m, points], in elements of an axis of `size`, by linear interpolation. What lies outside is
/// zero, or the edge where `clamped`.
PointTaps linear_taps(Var position, std::int64_t size, bool clamped);

/// The element at the integer that `position` is, in floats, times `weight`, 1 where empty; outside as above.
PointTap tap_at(Var position, std::int64_t size, bool clamped, Var weight = {});

/// `position` reflected between `low` and `high` as often as it takes; `low` itself where they are equal.
Var reflected(Var position, double low, double high);

/// Values of x [n, channels, sizes...] at m * points points, [m, points, channels]: the sum over all combinations of the axes'
/// taps. `rows`: of which n each m reads, i64 [m].
Var sampled(Var x, Var rows, const std::vector<PointTaps>& axes);

/// The neighbours of each point by themselves, weighted: [m, points, combinations, channels].
Var neighbours(Var x, Var rows, const std::vector<PointTaps>& axes);

}  // namespace gcomp::frontend::formulas
