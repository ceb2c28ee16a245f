// Normalizations without their scale and bias.
#pragma once

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// One entry for each channel (axis 1), repeated over `shape`.
Var per_channel(Var v, const Shape& shape);
/// (x - mean) / sqrt(variance + epsilon) over the last axes from `axis` on.
Var normalized(Var x, std::int64_t axis, double epsilon);
/// x / sqrt(mean of x^2 + epsilon) over the last axes from `axis` on.
Var rms_normalized(Var x, std::int64_t axis, double epsilon);
/// [n, c, ...] by the mean and variance of each of `groups`, which divide c; [n, groups, the rest].
Var group_normalized(Var x, std::int64_t groups, double epsilon);

}  // namespace gcomp::frontend::formulas
