#include "ir/nest/scalar_body.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "ir/base/philox.h"

namespace gcomp::ir {

std::string literal_text(DType dtype, double value) {
  char buffer[64];
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (is_integer(dtype)) {
    if (dtype == DType::u64) std::snprintf(buffer, sizeof buffer, "%lluull", static_cast<unsigned long long>(value));
    else if (value <= -0x1p63) return "(-9223372036854775807ll - 1)";
    else if (value >= 0x1p63) return "9223372036854775807ll";
    else std::snprintf(buffer, sizeof buffer, dtype == DType::i64 ? "(%lldll)" : "(%lld)", static_cast<long long>(value));
    return buffer;
  }
  const bool wide = compute_type(dtype) == DType::f64;
  if (value != value) return wide ? "gc_nan64" : "gc_nan32";
  if (std::isinf(value)) return std::string(value < 0 ? "(-" : "(") + (wide ? "gc_infinity64)" : "gc_infinity32)");
  // printf's %a writes the decimal point of the application's locale.
  const double exact = wide ? value : static_cast<double>(static_cast<float>(value));
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::abs(exact), std::chars_format::hex).ptr;
  return std::string(std::signbit(exact) ? "(-0x" : "(0x").append(buffer, end).append(wide ? ")" : "f)");
}

namespace scalar {

Expression apply_function(const char* name, std::initializer_list<const Expression*> arguments) {
  std::string text = std::string(name) + "(";
  DType dtype = DType::f32;
  bool first = true;
  for (const Expression* argument : arguments) {
    text += (first ? "" : ", ") + argument->text;
    if (first) dtype = argument->dtype;
    first = false;
  }
  return {text + ")", dtype};
}

Expression apply_operator(const char* symbol, const Expression& a, const Expression& b) {
  return {"(" + a.text + " " + symbol + " " + b.text + ")", a.dtype};
}

double philox_uniform(double seed, double step, double op, double sample, double element) {
  auto word = [](double x) { return static_cast<std::uint32_t>(static_cast<std::int64_t>(x)); };
  const auto position = static_cast<std::int64_t>(element);
  const auto words = philox4x32_10({static_cast<std::uint32_t>(position / 4), word(sample), word(step), word(op)},
                                   philox_key(static_cast<std::uint64_t>(static_cast<std::int64_t>(seed))));
  return (words[static_cast<std::size_t>(position % 4)] >> 8) * 0x1p-24;
}

double round_half_even(double x) { return std::nearbyint(x); }

}  // namespace scalar
}  // namespace gcomp::ir
