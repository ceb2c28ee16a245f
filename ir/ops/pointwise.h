// Pointwise ops: element i of the result from elements i of the operands. Kinks and ties have the gradients that PyTorch has.
#pragma once

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

using namespace gcomp::ir::scalar;  // NOLINT: bodies read as plain algebra

inline constexpr std::string_view kPiecewise = "piecewise constant: its derivative is zero almost everywhere";
inline constexpr std::string_view kDiscrete = "its result is not a real number";
inline constexpr AttributeSpec kCastAttributes[] = {AttributeSpec::of("to", AttributeType::dtype)};

using G = GradientContext;

// Arithmetic.
constexpr OpDef kAdd{.name = "add",
                     .summary = "x + y",
                     .operands = 2,
                     .scalar = body<2>([](auto x, auto y) { return x + y; }),
                     .gradient = {.rule = [](G& g) {
                       g.add(0, g.dy());
                       g.add(1, g.dy());
                     }}};
constexpr OpDef kSub{.name = "sub",
                     .summary = "x - y",
                     .operands = 2,
                     .scalar = body<2>([](auto x, auto y) { return x - y; }),
                     .gradient = {.rule = [](G& g) {
                       g.add(0, g.dy());
                       if (g.wants(1)) g.add(1, -g.dy());
                     }}};
constexpr OpDef kMul{.name = "mul",
                     .summary = "x * y",
                     .operands = 2,
                     .scalar = body<2>([](auto x, auto y) { return x * y; }),
                     .gradient = {.rule = [](G& g) {
                       if (g.wants(0)) g.add(0, g.dy() * g.operand(1));
                       if (g.wants(1)) g.add(1, g.dy() * g.operand(0));
                     }}};
constexpr OpDef kDiv{.name = "div",
                     .summary = "x / y; integers truncate, and a zero divisor gives 0",
                     .operands = 2,
                     .scalar = body<2>([](auto x, auto y) { return divide(x, y); }),
                     .gradient = {.rule =
                                      [](G& g) {
                                        if (g.wants(0)) g.add(0, g.dy() / g.operand(1));
                                        if (g.wants(1)) g.add(1, -(g.dy() * g.result() / g.operand(1)));
                                      }},
                     .low = 0.5,
                     .high = 2};
constexpr OpDef kNeg{
    .name = "neg", .summary = "-x", .operands = 1, .scalar = body<1>([](auto x) { return -x; }), .gradient = {.rule = [](G& g) {
                                                                                                   g.add(0, -g.dy());
                                                                                                 }}};
constexpr OpDef kAbs{.name = "abs",
                     .summary = "|x|; gradient 0 at 0",
                     .operands = 1,
                     .scalar = body<1>([](auto x) { return abs(x); }),
                     .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kSign(g.operand(0))); }}};
constexpr OpDef kSign{.name = "sign",
                      .summary = "-1, 0 or 1; NaN stays",
                      .operands = 1,
                      .scalar = body<1>([](auto x) { return sign(x); }),
                      .gradient = {.none = kPiecewise}};
constexpr OpDef kPow{.name = "pow",
                     .summary = "x to the power y",
                     .operands = 2,
                     .typing = PointwiseTyping::same,
                     .scalar = body<2>([](auto x, auto y) { return pow(x, y); }),
                     .gradient = {.rule =
                                      [](G& g) {
                                        Var x = g.operand(0), y = g.operand(1), zero = x.builder->like(x, 0);
                                        if (g.wants(0)) g.add(0, choose(y == zero, zero, g.dy() * y * kPow(x, y - 1.0)));
                                        if (g.wants(1)) g.add(1, choose(x == zero, zero, g.dy() * g.result() * kLog(x)));
                                      }},
                     .low = 0.3,
                     .high = 2};
constexpr OpDef kMaximum{.name = "maximum",
                         .summary = "the larger; NaN wins; equal operands share the gradient",
                         .operands = 2,
                         .scalar = body<2>([](auto x, auto y) { return maximum(x, y); }),
                         .gradient = {.rule = [](G& g) {
                           Var x = g.operand(0), y = g.operand(1), half = g.dy() * 0.5;
                           if (g.wants(0)) g.add(0, choose(x == y, half, choose(y < x, g.dy(), 0)));
                           if (g.wants(1)) g.add(1, choose(x == y, half, choose(x < y, g.dy(), 0)));
                         }}};
constexpr OpDef kMinimum{.name = "minimum",
                         .summary = "the smaller; NaN wins; equal operands share the gradient",
                         .operands = 2,
                         .scalar = body<2>([](auto x, auto y) { return minimum(x, y); }),
                         .gradient = {.rule = [](G& g) {
                           Var x = g.operand(0), y = g.operand(1), half = g.dy() * 0.5;
                           if (g.wants(0)) g.add(0, choose(x == y, half, choose(x < y, g.dy(), 0)));
                           if (g.wants(1)) g.add(1, choose(x == y, half, choose(y < x, g.dy(), 0)));
                         }}};
constexpr OpDef kTruncatedRemainder{.name = "truncated_remainder",
                                    .summary = "x - y * trunc(x / y), the sign of x",
                                    .operands = 2,
                                    .scalar = body<2>([](auto x, auto y) { return truncated_remainder(x, y); }),
                                    .gradient = {.rule =
                                                     [](G& g) {
                                                       Var x = g.operand(0), y = g.operand(1);
                                                       g.add(0, g.dy());
                                                       if (g.wants(1)) g.add(1, -(g.dy() * ((x - g.result()) / y)));
                                                     }},
                                    .low = 0.5,
                                    .high = 2};
constexpr OpDef kFlooredRemainder{.name = "floored_remainder",
                                  .summary = "x - y * floor(x / y), the sign of y",
                                  .operands = 2,
                                  .scalar = body<2>([](auto x, auto y) { return floored_remainder(x, y); }),
                                  .gradient = {.rule =
                                                   [](G& g) {
                                                     Var x = g.operand(0), y = g.operand(1);
                                                     g.add(0, g.dy());
                                                     if (g.wants(1)) g.add(1, -(g.dy() * ((x - g.result()) / y)));
                                                   }},
                                  .low = 0.5,
                                  .high = 2};

// Elementary functions.
constexpr OpDef kExp{.name = "exp",
                     .summary = "e to the x",
                     .operands = 1,
                     .typing = PointwiseTyping::floating,
                     .scalar = body<1>([](auto x) { return exp(x); }),
                     .gradient = {.rule = [](G& g) { g.add(0, g.dy() * g.result()); }}};
constexpr OpDef kExpm1{.name = "expm1",
                       .summary = "e to the x, less 1",
                       .operands = 1,
                       .typing = PointwiseTyping::floating,
                       .scalar = body<1>([](auto x) { return expm1(x); }),
                       .gradient = {.rule = [](G& g) { g.add(0, g.dy() * (g.result() + 1.0)); }}};
constexpr OpDef kLog{.name = "log",
                     .summary = "natural logarithm",
                     .operands = 1,
                     .typing = PointwiseTyping::floating,
                     .scalar = body<1>([](auto x) { return log(x); }),
                     .gradient = {.rule = [](G& g) { g.add(0, g.dy() / g.operand(0)); }},
                     .low = 0.2};
constexpr OpDef kLog1p{.name = "log1p",
                       .summary = "log(1 + x)",
                       .operands = 1,
                       .typing = PointwiseTyping::floating,
                       .scalar = body<1>([](auto x) { return log1p(x); }),
                       .gradient = {.rule = [](G& g) { g.add(0, g.dy() / (g.operand(0) + 1.0)); }},
                       .low = -0.5};
constexpr OpDef kSqrt{.name = "sqrt",
                      .summary = "square root",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return sqrt(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy() * 0.5 / g.result()); }},
                      .low = 0.2};
constexpr OpDef kRsqrt{.name = "rsqrt",
                       .summary = "1 / sqrt(x)",
                       .operands = 1,
                       .typing = PointwiseTyping::floating,
                       .scalar = body<1>([](auto x) { return rsqrt(x); }),
                       .gradient = {.rule = [](G& g) { g.add(0, g.dy() * -0.5 * g.result() * g.result() * g.result()); }},
                       .low = 0.2};
constexpr OpDef kTanh{.name = "tanh",
                      .summary = "hyperbolic tangent",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return tanh(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy() * (1.0 - g.result() * g.result())); }}};
constexpr OpDef kSigmoid{.name = "sigmoid",
                         .summary = "1 / (1 + exp(-x))",
                         .operands = 1,
                         .typing = PointwiseTyping::floating,
                         .scalar = body<1>([](auto x) { return sigmoid(x); }),
                         .gradient = {.rule = [](G& g) { g.add(0, g.dy() * g.result() * (1.0 - g.result())); }}};
constexpr OpDef kSoftplus{.name = "softplus",
                          .summary = "log(1 + exp(x)) without overflow",
                          .operands = 1,
                          .typing = PointwiseTyping::floating,
                          .scalar = body<1>([](auto x) { return softplus(x); }),
                          .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kSigmoid(g.operand(0))); }}};
constexpr OpDef kErf{
    .name = "erf",
    .summary = "error function",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .scalar = body<1>([](auto x) { return erf(x); }),
    .gradient = {.rule = [](G& g) { g.add(0, g.dy() * 1.1283791670955126 * kExp(-(g.operand(0) * g.operand(0)))); }}};
constexpr OpDef kRelu{.name = "relu",
                      .summary = "max(x, 0); gradient 0 at 0",
                      .operands = 1,
                      .scalar = body<1>([](auto x) { return maximum(x, constant(x, 0)); }),
                      .gradient = {.rule = [](G& g) {
                        Var y = g.result();
                        g.add(0, choose(y > y.builder->like(y, 0), g.dy(), 0));
                      }}};
constexpr OpDef kSin{.name = "sin",
                     .summary = "sine",
                     .operands = 1,
                     .typing = PointwiseTyping::floating,
                     .scalar = body<1>([](auto x) { return sin(x); }),
                     .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kCos(g.operand(0))); }}};
constexpr OpDef kCos{.name = "cos",
                     .summary = "cosine",
                     .operands = 1,
                     .typing = PointwiseTyping::floating,
                     .scalar = body<1>([](auto x) { return cos(x); }),
                     .gradient = {.rule = [](G& g) { g.add(0, -(g.dy() * kSin(g.operand(0)))); }}};
constexpr OpDef kTan{.name = "tan",
                     .summary = "tangent",
                     .operands = 1,
                     .typing = PointwiseTyping::floating,
                     .scalar = body<1>([](auto x) { return tan(x); }),
                     .gradient = {.rule = [](G& g) { g.add(0, g.dy() * (g.result() * g.result() + 1.0)); }},
                     .low = -1,
                     .high = 1};
constexpr OpDef kAsin{.name = "asin",
                      .summary = "inverse sine",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return asin(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kRsqrt(1.0 - g.operand(0) * g.operand(0))); }},
                      .low = -0.8,
                      .high = 0.8};
constexpr OpDef kAcos{.name = "acos",
                      .summary = "inverse cosine",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return acos(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, -(g.dy() * kRsqrt(1.0 - g.operand(0) * g.operand(0)))); }},
                      .low = -0.8,
                      .high = 0.8};
constexpr OpDef kAtan{.name = "atan",
                      .summary = "inverse tangent",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return atan(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy() / (g.operand(0) * g.operand(0) + 1.0)); }}};
constexpr OpDef kSinh{.name = "sinh",
                      .summary = "hyperbolic sine",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return sinh(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kCosh(g.operand(0))); }}};
constexpr OpDef kCosh{.name = "cosh",
                      .summary = "hyperbolic cosine",
                      .operands = 1,
                      .typing = PointwiseTyping::floating,
                      .scalar = body<1>([](auto x) { return cosh(x); }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kSinh(g.operand(0))); }}};
constexpr OpDef kAsinh{.name = "asinh",
                       .summary = "inverse hyperbolic sine",
                       .operands = 1,
                       .typing = PointwiseTyping::floating,
                       .scalar = body<1>([](auto x) { return asinh(x); }),
                       .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kRsqrt(g.operand(0) * g.operand(0) + 1.0)); }}};
constexpr OpDef kAcosh{.name = "acosh",
                       .summary = "inverse hyperbolic cosine",
                       .operands = 1,
                       .typing = PointwiseTyping::floating,
                       .scalar = body<1>([](auto x) { return acosh(x); }),
                       .gradient = {.rule = [](G& g) { g.add(0, g.dy() * kRsqrt(g.operand(0) * g.operand(0) - 1.0)); }},
                       .low = 1.2,
                       .high = 3};
constexpr OpDef kAtanh{.name = "atanh",
                       .summary = "inverse hyperbolic tangent",
                       .operands = 1,
                       .typing = PointwiseTyping::floating,
                       .scalar = body<1>([](auto x) { return atanh(x); }),
                       .gradient = {.rule = [](G& g) { g.add(0, g.dy() / (1.0 - g.operand(0) * g.operand(0))); }},
                       .low = -0.8,
                       .high = 0.8};
constexpr OpDef kFloor{.name = "floor",
                       .summary = "largest integer not above x",
                       .operands = 1,
                       .scalar = body<1>([](auto x) { return floor(x); }),
                       .gradient = {.none = kPiecewise}};
constexpr OpDef kCeil{.name = "ceil",
                      .summary = "smallest integer not below x",
                      .operands = 1,
                      .scalar = body<1>([](auto x) { return ceil(x); }),
                      .gradient = {.none = kPiecewise}};
constexpr OpDef kRound{.name = "round",
                       .summary = "nearest integer, halves to even",
                       .operands = 1,
                       .scalar = body<1>([](auto x) { return round(x); }),
                       .gradient = {.none = kPiecewise}};

// Comparison, choice, conversion.
constexpr OpDef kLess{.name = "less",
                      .summary = "x < y",
                      .operands = 2,
                      .typing = PointwiseTyping::predicate,
                      .scalar = body<2>([](auto x, auto y) { return x < y; }),
                      .gradient = {.none = kDiscrete}};
constexpr OpDef kLessEqual{.name = "less_equal",
                           .summary = "x <= y",
                           .operands = 2,
                           .typing = PointwiseTyping::predicate,
                           .scalar = body<2>([](auto x, auto y) { return x <= y; }),
                           .gradient = {.none = kDiscrete}};
constexpr OpDef kEqual{.name = "equal",
                       .summary = "x == y",
                       .operands = 2,
                       .typing = PointwiseTyping::predicate,
                       .scalar = body<2>([](auto x, auto y) { return x == y; }),
                       .gradient = {.none = kDiscrete}};
constexpr OpDef kIsNan{.name = "is_nan",
                       .summary = "whether x is NaN",
                       .operands = 1,
                       .typing = PointwiseTyping::predicate,
                       .scalar = body<1>([](auto x) { return is_nan(x); }),
                       .gradient = {.none = kDiscrete}};
constexpr OpDef kIsInf{.name = "is_inf",
                       .summary = "whether x is infinite",
                       .operands = 1,
                       .typing = PointwiseTyping::predicate,
                       .scalar = body<1>([](auto x) { return is_inf(x); }),
                       .gradient = {.none = kDiscrete}};
constexpr OpDef kAnd{.name = "and",
                     .summary = "both",
                     .operands = 2,
                     .typing = PointwiseTyping::logical,
                     .scalar = body<2>([](auto x, auto y) { return x && y; }),
                     .gradient = {.none = kDiscrete}};
constexpr OpDef kOr{.name = "or",
                    .summary = "either or both",
                    .operands = 2,
                    .typing = PointwiseTyping::logical,
                    .scalar = body<2>([](auto x, auto y) { return x || y; }),
                    .gradient = {.none = kDiscrete}};
constexpr OpDef kXor{.name = "xor",
                     .summary = "exactly one",
                     .operands = 2,
                     .typing = PointwiseTyping::logical,
                     .scalar = body<2>([](auto x, auto y) { return x != y; }),
                     .gradient = {.none = kDiscrete}};
constexpr OpDef kNot{.name = "not",
                     .summary = "negation",
                     .operands = 1,
                     .typing = PointwiseTyping::logical,
                     .scalar = body<1>([](auto x) { return !x; }),
                     .gradient = {.none = kDiscrete}};
constexpr OpDef kBitAnd{.name = "bit_and",
                        .summary = "bitwise and of integers",
                        .operands = 2,
                        .scalar = body<2>([](auto x, auto y) { return bit_and(x, y); }),
                        .gradient = {.none = kDiscrete}};
constexpr OpDef kBitOr{.name = "bit_or",
                       .summary = "bitwise or of integers",
                       .operands = 2,
                       .scalar = body<2>([](auto x, auto y) { return bit_or(x, y); }),
                       .gradient = {.none = kDiscrete}};
constexpr OpDef kBitXor{.name = "bit_xor",
                        .summary = "bitwise exclusive or of integers",
                        .operands = 2,
                        .scalar = body<2>([](auto x, auto y) { return bit_xor(x, y); }),
                        .gradient = {.none = kDiscrete}};
constexpr OpDef kBitNot{.name = "bit_not",
                        .summary = "bitwise complement of an integer",
                        .operands = 1,
                        .scalar = body<1>([](auto x) { return bit_not(x); }),
                        .gradient = {.none = kDiscrete}};
constexpr OpDef kShiftLeft{.name = "shift_left",
                           .summary = "x << y; 0 where y reaches the width",
                           .operands = 2,
                           .scalar = body<2>([](auto x, auto y) { return shift_left(x, y); }),
                           .gradient = {.none = kDiscrete},
                           .low = 0};
constexpr OpDef kShiftRight{.name = "shift_right",
                            .summary = "x >> y; 0 where y reaches the width",
                            .operands = 2,
                            .scalar = body<2>([](auto x, auto y) { return shift_right(x, y); }),
                            .gradient = {.none = kDiscrete},
                            .low = 0};
constexpr OpDef kSelect{.name = "select",
                        .summary = "y where the condition holds, else z",
                        .operands = 3,
                        .typing = PointwiseTyping::select,
                        .scalar = body<3>([](auto c, auto x, auto y) { return select(c, x, y); }),
                        .gradient = {.rule = [](G& g) {
                          Var zero = g.dy().builder->like(g.dy(), 0);
                          if (g.wants(1)) g.add(1, choose(g.operand(0), g.dy(), zero));
                          if (g.wants(2)) g.add(2, choose(g.operand(0), zero, g.dy()));
                        }}};
constexpr OpDef kCast{.name = "cast",
                      .summary = "conversion of dtype: floats round to even, float to integer saturates",
                      .operands = 1,
                      .attributes = kCastAttributes,
                      .typing = PointwiseTyping::cast,
                      .scalar = body<1>([](auto x) { return x; }),
                      .gradient = {.rule = [](G& g) { g.add(0, g.dy().builder->cast(g.dy(), g.operand(0).dtype())); }}};

inline constexpr const OpDef* kPointwiseOps[] = {&kAdd,
                                                 &kSub,
                                                 &kMul,
                                                 &kDiv,
                                                 &kNeg,
                                                 &kAbs,
                                                 &kSign,
                                                 &kPow,
                                                 &kMaximum,
                                                 &kMinimum,
                                                 &kTruncatedRemainder,
                                                 &kFlooredRemainder,
                                                 &kExp,
                                                 &kExpm1,
                                                 &kLog,
                                                 &kLog1p,
                                                 &kSqrt,
                                                 &kRsqrt,
                                                 &kTanh,
                                                 &kSigmoid,
                                                 &kSoftplus,
                                                 &kErf,
                                                 &kRelu,
                                                 &kSin,
                                                 &kCos,
                                                 &kTan,
                                                 &kAsin,
                                                 &kAcos,
                                                 &kAtan,
                                                 &kSinh,
                                                 &kCosh,
                                                 &kAsinh,
                                                 &kAcosh,
                                                 &kAtanh,
                                                 &kFloor,
                                                 &kCeil,
                                                 &kRound,
                                                 &kLess,
                                                 &kLessEqual,
                                                 &kEqual,
                                                 &kIsNan,
                                                 &kIsInf,
                                                 &kAnd,
                                                 &kOr,
                                                 &kXor,
                                                 &kNot,
                                                 &kBitAnd,
                                                 &kBitOr,
                                                 &kBitXor,
                                                 &kBitNot,
                                                 &kShiftLeft,
                                                 &kShiftRight,
                                                 &kSelect,
                                                 &kCast};

}  // namespace gcomp::ir::ops
