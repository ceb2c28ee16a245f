// What a model written in C++ computes beside its layers: ops on values, which gcomp differentiates, fuses and compiles like any
// other. Operands of an op with two have equal types. Negative axes count from the end. All throw UserError naming op and operands
// where those do not fit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gcomp/var.h"

namespace gcomp::ops {

// Elementwise, of floats (abs, sign, maximum, minimum and remainder of integers too).
Var abs(Var x);
Var sign(Var x);  ///< -1, 0 or 1; NaN stays
Var floor(Var x);
Var ceil(Var x);
Var round(Var x);   ///< halves to even
Var detach(Var x);  ///< x, as a value that no gradient goes through
Var exp(Var x);
Var expm1(Var x);
Var log(Var x);
Var log1p(Var x);
Var sqrt(Var x);
Var rsqrt(Var x);  ///< 1 / sqrt(x)
Var erf(Var x);
Var relu(Var x);
Var sigmoid(Var x);
Var softplus(Var x);
Var sin(Var x);
Var cos(Var x);
Var tan(Var x);
Var asin(Var x);
Var acos(Var x);
Var atan(Var x);
Var sinh(Var x);
Var cosh(Var x);
Var tanh(Var x);
Var asinh(Var x);
Var acosh(Var x);
Var atanh(Var x);
Var pow(Var x, Var y);
Var maximum(Var x, Var y);    ///< NaN wins
Var minimum(Var x, Var y);    ///< NaN wins
Var remainder(Var x, Var y);  ///< x - y * floor(x / y), the sign of y

// Bools and types.
Var is_nan(Var x);
Var is_inf(Var x);
Var logical_and(Var x, Var y);
Var logical_or(Var x, Var y);
Var logical_not(Var x);
/// `x` where the condition, bools of the same shape, holds, else `y`.
Var select(Var condition, Var x, Var y);
/// Floats round to nearest even, float to integer truncates and saturates.
Var cast(Var x, DType to);
/// A constant of the type of `x`, every element `value`.
Var like(Var x, double value);

// Shapes.
Var reshape(Var x, Shape shape);
/// Axis i of the result is axis permutation[i] of `x`.
Var transpose(Var x, std::vector<std::int64_t> permutation);
/// By NumPy's rule: trailing axes are aligned, sizes of 1 repeat.
Var broadcast(Var x, Shape shape);
/// Axis i of `x` becomes axis axes[i] of `shape`; the rest repeats. The axes ascend.
Var broadcast(Var x, Shape shape, std::vector<std::int64_t> axes);
/// Element start + i * step along each axis; `sizes` is the result's shape. Steps may be negative.
Var slice(Var x, std::vector<std::int64_t> starts, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps);
/// `low` and `high` elements of `value` around each axis; negative counts crop.
Var pad(Var x, std::vector<std::int64_t> low, std::vector<std::int64_t> high, double value);
Var concat(std::vector<Var> parts, std::int64_t axis);

// Axes ascend, each once.
enum class Axes : std::uint8_t { dropped, kept };  ///< whether reduced axes leave the shape, or stay with size 1
Var sum(Var x, std::vector<std::int64_t> axes, Axes reduced = Axes::dropped);
Var mean(Var x, std::vector<std::int64_t> axes, Axes reduced = Axes::dropped);
Var max(Var x, std::vector<std::int64_t> axes, Axes reduced = Axes::dropped);
Var min(Var x, std::vector<std::int64_t> axes, Axes reduced = Axes::dropped);
/// The first position, i64, within the reduced axes.
Var arg_max(Var x, std::vector<std::int64_t> axes, Axes reduced = Axes::dropped);
Var cumulative_sum(Var x, std::int64_t axis);
Var softmax(Var x, std::int64_t axis);
Var log_softmax(Var x, std::int64_t axis);

/// [batch..., m, k] times [batch..., k, n], of equal batch dimensions.
Var matmul(Var a, Var b);
/// Slices of `data` along `axis` at integer `indices`: [..., indices..., ...].
Var gather(Var data, Var indices, std::int64_t axis);

/// Any op by its name in the IR (gcomp-opt --list-ops), with its attributes as the IR spells them: apply("convolution", {x, w},
/// "{strides=[2, 2], low=[1, 1], high=[1, 1], dilations=[1, 1]}"). Throws UserError with the nearest name where there is none.
std::vector<Var> apply(std::string_view op, const std::vector<Var>& operands, std::string_view attributes = "");

}  // namespace gcomp::ops
