// Elementary functions, pointwise: of one real number, and the power.
#pragma once

#include "ir/ops/pointwise.h"

namespace gcomp::ir::ops {

// Exponentials and roots.
constexpr OpDef kExp{
    .name = "exp",
    .summary = "e to the x",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return exp(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * g.result()); },
};
constexpr OpDef kExpm1{
    .name = "expm1",
    .summary = "e to the x, less 1",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return expm1(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * (g.result() + 1.0)); },
};
constexpr OpDef kLog{
    .name = "log",
    .summary = "natural logarithm",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return log(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() / g.operand(0))); },
    .low = 0.2,
};
constexpr OpDef kLog1p{
    .name = "log1p",
    .summary = "log(1 + x)",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return log1p(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() / (g.operand(0) + 1.0))); },
    .low = -0.5,
};
constexpr OpDef kPow{
    .name = "pow",
    .summary = "x to the power y",
    .operands = 2,
    .typing = PointwiseTyping::same,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<2>([](auto x, auto y) { return pow(x, y); }),
    .gradient =
        [](G& g) {
          Var x = g.operand(0), y = g.operand(1), zero = x.builder->like(x, 0);
          if (g.wants(0)) g.add(0, where_reached(g.dy(), choose(y == zero, zero, g.dy() * y * kPow(x, y - 1.0))));
          if (g.wants(1)) g.add(1, where_reached(g.dy(), choose(x == zero, zero, g.dy() * g.result() * kLog(x))));
        },
    .low = 0.3,
    .high = 2,
};
constexpr OpDef kSqrt{
    .name = "sqrt",
    .summary = "square root",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 2,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return sqrt(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() * 0.5 / g.result())); },
    .low = 0.2,
};
constexpr OpDef kRsqrt{
    .name = "rsqrt",
    .summary = "1 / sqrt(x)",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 2,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return rsqrt(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() * -0.5 * g.result() * g.result() * g.result())); },
    .low = 0.2,
};

// Activations and the error function.
constexpr OpDef kTanh{
    .name = "tanh",
    .summary = "hyperbolic tangent",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return tanh(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * (1.0 - g.result() * g.result())); },
};
constexpr OpDef kSigmoid{
    .name = "sigmoid",
    .summary = "1 / (1 + exp(-x))",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return sigmoid(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * g.result() * (1.0 - g.result())); },
};
constexpr OpDef kSoftplus{
    .name = "softplus",
    .summary = "log(1 + exp(x)) without overflow",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return softplus(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * kSigmoid(g.operand(0))); },
};
constexpr OpDef kErf{
    .name = "erf",
    .summary = "error function",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return erf(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * 1.1283791670955126 * kExp(-(g.operand(0) * g.operand(0)))); },
};

// Trigonometric and hyperbolic functions.
constexpr OpDef kSin{
    .name = "sin",
    .summary = "sine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return sin(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * kCos(g.operand(0))); },
};
constexpr OpDef kCos{
    .name = "cos",
    .summary = "cosine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return cos(x); }),
    .gradient = [](G& g) { g.add(0, -(g.dy() * kSin(g.operand(0)))); },
};
constexpr OpDef kTan{
    .name = "tan",
    .summary = "tangent",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return tan(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * (g.result() * g.result() + 1.0)); },
    .low = -1,
    .high = 1,
};
constexpr OpDef kAsin{
    .name = "asin",
    .summary = "inverse sine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return asin(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() * kRsqrt(1.0 - g.operand(0) * g.operand(0)))); },
    .low = -0.8,
    .high = 0.8,
};
constexpr OpDef kAcos{
    .name = "acos",
    .summary = "inverse cosine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return acos(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), -(g.dy() * kRsqrt(1.0 - g.operand(0) * g.operand(0))))); },
    .low = -0.8,
    .high = 0.8,
};
constexpr OpDef kAtan{
    .name = "atan",
    .summary = "inverse tangent",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return atan(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() / (g.operand(0) * g.operand(0) + 1.0)); },
};
constexpr OpDef kSinh{
    .name = "sinh",
    .summary = "hyperbolic sine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return sinh(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * kCosh(g.operand(0))); },
};
constexpr OpDef kCosh{
    .name = "cosh",
    .summary = "hyperbolic cosine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return cosh(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * kSinh(g.operand(0))); },
};
constexpr OpDef kAsinh{
    .name = "asinh",
    .summary = "inverse hyperbolic sine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return asinh(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * kRsqrt(g.operand(0) * g.operand(0) + 1.0)); },
};
constexpr OpDef kAcosh{
    .name = "acosh",
    .summary = "inverse hyperbolic cosine",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return acosh(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() * kRsqrt(g.operand(0) * g.operand(0) - 1.0))); },
    .low = 1.2,
    .high = 3,
};
constexpr OpDef kAtanh{
    .name = "atanh",
    .summary = "inverse hyperbolic tangent",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 6,
    .precision = Precision::wide,
    .scalar = body<1>([](auto x) { return atanh(x); }),
    .gradient = [](G& g) { g.add(0, where_reached(g.dy(), g.dy() / (1.0 - g.operand(0) * g.operand(0)))); },
    .low = -0.8,
    .high = 0.8,
};

inline constexpr const OpDef* kElementaryOps[] = {
    &kExp, &kExpm1, &kLog, &kLog1p, &kPow,  &kSqrt, &kRsqrt, &kTanh, &kSigmoid, &kSoftplus, &kErf,
    &kSin, &kCos,   &kTan, &kAsin,  &kAcos, &kAtan, &kSinh,  &kCosh, &kAsinh,   &kAcosh,    &kAtanh,
};

}  // namespace gcomp::ir::ops
