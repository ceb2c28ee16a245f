// Axes of a map that its reads take apart. A reshape between two kernels leaves the second with one axis where the first has two:
//
//   %y[i,j] = f(%x[i / 128,i % 128,j])       ->    %y[i*128 + k,j] = f(%x[i,k,j])
//
// so that the second has the axes of the first, and can become part of it.
#pragma once

#include <optional>
#include <vector>

#include "passes/fusion/fusion_units.h"

namespace gcomp::passes {

/// The unit with those axes divided that `read`, the index of one of its reads, takes apart, and that index over its axes. Nothing
/// where the unit is more than maps, or the index takes no axis apart evenly.
struct DividedUnit {
  FusionUnit unit;
  std::vector<ir::Index> read;
};
std::optional<DividedUnit> divide_axes(const FusionUnit& unit, const std::vector<ir::Index>& read);

}  // namespace gcomp::passes
