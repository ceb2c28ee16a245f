// The scalar body of a pointwise op: one generic lambda, run with double as the reference and with Expression as the
// printed kernel, so the two cannot drift apart.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "ir/base/dtype.h"

namespace gcomp::ir {

/// C-like text of one scalar; functions are spelled gc_NAME and defined by each target's prelude.
struct Expression {
  std::string text;
  DType dtype = DType::f32;  ///< the type it is computed in, which constants take
};

/// A literal that reads back as exactly `value` in C++ and CUDA: hexadecimal floats, or gc_infinity / gc_nan.
std::string literal_text(DType dtype, double value);

namespace scalar {

inline double constant(double, double value) { return value; }
inline Expression constant(const Expression& like, double value) { return {literal_text(like.dtype, value), like.dtype}; }

Expression apply_function(const char* name, std::initializer_list<const Expression*> arguments);
Expression apply_operator(const char* symbol, const Expression& a, const Expression& b);

inline Expression operator+(const Expression& a, const Expression& b) { return apply_operator("+", a, b); }
inline Expression operator-(const Expression& a, const Expression& b) { return apply_operator("-", a, b); }
inline Expression operator*(const Expression& a, const Expression& b) { return apply_operator("*", a, b); }
inline Expression operator<(const Expression& a, const Expression& b) { return apply_operator("<", a, b); }
inline Expression operator<=(const Expression& a, const Expression& b) { return apply_operator("<=", a, b); }
inline Expression operator==(const Expression& a, const Expression& b) { return apply_operator("==", a, b); }
inline Expression operator!=(const Expression& a, const Expression& b) { return apply_operator("!=", a, b); }
inline Expression operator&&(const Expression& a, const Expression& b) { return apply_operator("&&", a, b); }
inline Expression operator||(const Expression& a, const Expression& b) { return apply_operator("||", a, b); }
inline Expression operator-(const Expression& a) { return apply_function("gc_neg", {&a}); }
inline Expression operator!(const Expression& a) { return {"(!" + a.text + ")", a.dtype}; }

inline double select(bool condition, double a, double b) { return condition ? a : b; }
inline double select(double condition, double a, double b) { return condition != 0 ? a : b; }
inline Expression select(const Expression& c, const Expression& a, const Expression& b) {
  return {"(" + c.text + " ? " + a.text + " : " + b.text + ")", a.dtype};
}

// One line a function: its reference in double; the printed form is gc_NAME.
#define GCOMP_SCALAR_1(name, ...)                      \
  inline double name(double x) { return __VA_ARGS__; } \
  inline Expression name(const Expression& x) { return apply_function("gc_" #name, {&x}); }
#define GCOMP_SCALAR_2(name, ...)                                \
  inline double name(double x, double y) { return __VA_ARGS__; } \
  inline Expression name(const Expression& x, const Expression& y) { return apply_function("gc_" #name, {&x, &y}); }

double round_half_even(double x);
double philox_uniform(double seed, double step, double op, double sample, double element);
inline Expression philox_uniform(const Expression& seed, const Expression& step, const Expression& op, const Expression& sample,
                                 const Expression& element) {
  return apply_function("gc_philox_uniform", {&seed, &step, &op, &sample, &element});
}

/// Shifts the 64-bit integer `x`, with its sign where it is negative; 0 where `y` reaches the width.
template <class F>
double shifted(double x, double y, F shift) {
  if (!(y >= 0 && y < 64)) return 0;
  if (x < 0) return static_cast<double>(shift(static_cast<std::int64_t>(x), static_cast<int>(y)));
  return static_cast<double>(shift(static_cast<std::uint64_t>(x), static_cast<int>(y)));
}

GCOMP_SCALAR_1(abs, std::fabs(x))
GCOMP_SCALAR_1(sign, x != x ? x : static_cast<double>((x > 0) - (x < 0)))
GCOMP_SCALAR_1(exp, std::exp(x))
GCOMP_SCALAR_1(expm1, std::expm1(x))
GCOMP_SCALAR_1(log, std::log(x))
GCOMP_SCALAR_1(log1p, std::log1p(x))
GCOMP_SCALAR_1(sqrt, std::sqrt(x))
GCOMP_SCALAR_1(rsqrt, 1 / std::sqrt(x))
GCOMP_SCALAR_1(tanh, std::tanh(x))
GCOMP_SCALAR_1(erf, std::erf(x))
GCOMP_SCALAR_1(sin, std::sin(x))
GCOMP_SCALAR_1(cos, std::cos(x))
GCOMP_SCALAR_1(tan, std::tan(x))
GCOMP_SCALAR_1(asin, std::asin(x))
GCOMP_SCALAR_1(acos, std::acos(x))
GCOMP_SCALAR_1(atan, std::atan(x))
GCOMP_SCALAR_1(sinh, std::sinh(x))
GCOMP_SCALAR_1(cosh, std::cosh(x))
GCOMP_SCALAR_1(asinh, std::asinh(x))
GCOMP_SCALAR_1(acosh, std::acosh(x))
GCOMP_SCALAR_1(atanh, std::atanh(x))
GCOMP_SCALAR_1(floor, std::floor(x))
GCOMP_SCALAR_1(ceil, std::ceil(x))
GCOMP_SCALAR_1(round, round_half_even(x))
GCOMP_SCALAR_1(sigmoid, x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)))
GCOMP_SCALAR_1(softplus, (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x))))
GCOMP_SCALAR_1(is_nan, x != x)
GCOMP_SCALAR_1(is_inf, std::isinf(x))
GCOMP_SCALAR_1(bit_not, static_cast<double>(~static_cast<std::int64_t>(x)))
GCOMP_SCALAR_2(divide, x / y)
GCOMP_SCALAR_2(maximum, x > y || x != x ? x : y)
GCOMP_SCALAR_2(minimum, x < y || x != x ? x : y)
GCOMP_SCALAR_2(pow, std::pow(x, y))
GCOMP_SCALAR_2(truncated_remainder, std::fmod(x, y))
GCOMP_SCALAR_2(floored_remainder, std::fmod(x, y) + (std::fmod(x, y) != 0 && (std::fmod(x, y) < 0) != (y < 0) ? y : 0))
GCOMP_SCALAR_2(bit_and, static_cast<double>(static_cast<std::int64_t>(x) & static_cast<std::int64_t>(y)))
GCOMP_SCALAR_2(bit_or, static_cast<double>(static_cast<std::int64_t>(x) | static_cast<std::int64_t>(y)))
GCOMP_SCALAR_2(bit_xor, static_cast<double>(static_cast<std::int64_t>(x) ^ static_cast<std::int64_t>(y)))
GCOMP_SCALAR_2(shift_left, shifted(x, y, [](auto bits, int by) { return bits << by; }))
GCOMP_SCALAR_2(shift_right, shifted(x, y, [](auto bits, int by) { return bits >> by; }))

#undef GCOMP_SCALAR_1
#undef GCOMP_SCALAR_2

}  // namespace scalar

struct ScalarBody {
  int arity = 0;
  double (*reference)(std::span<const double>) = nullptr;
  Expression (*text)(std::span<const Expression>) = nullptr;
};

template <class T, class F, std::size_t... I>
auto apply_body(std::span<const T> arguments, std::index_sequence<I...>) {
  return F{}(arguments[I]...);
}

/// `F` is a generic lambda without captures; inside it, unqualified names are those of namespace scalar.
template <int N, class F>
consteval ScalarBody body(F) {
  return {N,
          [](std::span<const double> a) -> double {
            return static_cast<double>(apply_body<double, F>(a, std::make_index_sequence<N>{}));
          },
          [](std::span<const Expression> a) -> Expression { return apply_body<Expression, F>(a, std::make_index_sequence<N>{}); }};
}

}  // namespace gcomp::ir
