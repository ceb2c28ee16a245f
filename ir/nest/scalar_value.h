// What one scalar operation gives, with numbers of every dtype held as doubles.
#pragma once

#include <span>

#include "ir/base/dtype.h"
#include "ir/op.h"

namespace gcomp::ir {

/// Integers up to here are doubles, all of them.
inline constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

/// A whole number as the dtype holds it: integers of 8 to 32 bits wrap; 64-bit ones are exact to 2^53 in any case. Other dtypes
/// round.
double wrapped(DType dtype, double value);

/// The result of an op in `dtype`, of floats not yet rounded to it. Integer division truncates, by zero gives 0; a cast of a float
/// saturates; other arithmetic wraps. `of_first`: the first argument's dtype.
double value_of_call(DType dtype, const OpDef& op, DType of_first, std::span<const double> arguments);

/// A step of a reduction or scan in `dtype`, floats not rounded; integers wrap.
double combined(Reduction::Of of, DType dtype, double total, double value);

}  // namespace gcomp::ir
