#include "ir/nest/scalar_value.h"

#include <cmath>
#include <cstdint>

#include "ir/ops/table.h"

namespace gcomp::ir {
namespace {

/// The product of two integers of up to 32 bits, which outgrows a double as no other operation's result does.
double wrapped_product(DType dtype, double a, double b) {
  const auto bits = [](double x) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(x)); };
  return wrapped(dtype, static_cast<double>((bits(a) * bits(b)) & 0xffffffffU));
}

}  // namespace

double wrapped(DType dtype, double value) {
  if (!is_integer(dtype) || size_of(dtype) == 8) return round_to(dtype, value);
  const double range = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)));
  const double low = value - range * std::floor(value / range);
  return is_signed_integer(dtype) && low >= range / 2 ? low - range : low;
}

double value_of_call(DType dtype, const OpDef& op, DType of_first, std::span<const double> arguments) {
  const double value = op.scalar.reference(arguments);
  if (is_float(dtype)) return value;
  if (dtype == DType::boolean) return value != 0;
  if (op.typing == PointwiseTyping::cast && is_float(of_first)) return round_to(dtype, value);
  if (!std::isfinite(value)) return 0;
  if (&op == &ops::kMul && size_of(dtype) < 8) return wrapped_product(dtype, arguments[0], arguments[1]);
  return wrapped(dtype, std::trunc(value));
}

double combined(Reduction::Of of, DType dtype, double total, double value) {
  const double result = combine(of, total, value);
  // While totals stay in half of what is exact, one more addend of 32 bits is.
  if (!is_integer(dtype) || std::fabs(result) <= kExactIntegers / 2) return result;
  return of == Reduction::Of::product && size_of(dtype) < 8 ? wrapped_product(dtype, total, value) : wrapped(dtype, result);
}

}  // namespace gcomp::ir
