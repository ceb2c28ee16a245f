// Pointwise ops: element i of the result from elements i of the operands. Kinks and ties have the gradients that PyTorch has.
#pragma once

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/algebra.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

using namespace gcomp::ir::scalar;  // NOLINT: bodies read as plain algebra

inline constexpr std::string_view kPiecewise = "piecewise constant: its derivative is zero almost everywhere";
inline constexpr std::string_view kDiscrete = "its result is not a real number";
inline constexpr AttributeSpec kCastAttributes[] = {AttributeSpec::of("to", AttributeType::dtype)};

using G = GradientContext;

/// A gradient that is dy times what may be infinite: 0 where dy is 0. So what a select, a bound or a mask leaves out has no effect,
/// and where(x > 0, log(x), 0) needs no second guard within the logarithm.
inline Var where_reached(Var dy, Var gradient) { return choose(dy == dy.builder->like(dy, 0), dy.builder->like(dy, 0), gradient); }

// Arithmetic.
constexpr OpDef kAdd{
    .name = "add",
    .summary = "x + y",
    .operands = 2,
    .cost = 1,
    .precision = Precision::promoted,
    .commutative = true,
    .rules = kAddRules,
    .scalar = body<2>([](auto x, auto y) { return x + y; }),
    .gradient =
        [](G& g) {
          g.add(0, g.dy());
          g.add(1, g.dy());
        },
};
constexpr OpDef kSub{
    .name = "sub",
    .summary = "x - y",
    .operands = 2,
    .cost = 1,
    .precision = Precision::promoted,
    .identity = 0,
    .scalar = body<2>([](auto x, auto y) { return x - y; }),
    .gradient =
        [](G& g) {
          g.add(0, g.dy());
          if (g.wants(1)) g.add(1, -g.dy());
        },
};
constexpr OpDef kMul{
    .name = "mul",
    .summary = "x * y",
    .operands = 2,
    .cost = 1,
    .precision = Precision::promoted,
    .wide_where = [](const Node& n) { return n.operands[0] == n.operands[1]; },
    .identity = 1,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return x * y; }),
    .gradient =
        [](G& g) {
          if (g.wants(0)) g.add(0, g.dy() * g.operand(1));
          if (g.wants(1)) g.add(1, g.dy() * g.operand(0));
        },
};
constexpr OpDef kDiv{
    .name = "div",
    .summary = "x / y; integers truncate, and a zero divisor gives 0",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .wide_where = [](const Node& n) { return is_made_by(n.operands[0], kFull); },
    .identity = 1,
    .rules = kDivRules,
    .scalar = body<2>([](auto x, auto y) { return divide(x, y); }),
    .gradient =
        [](G& g) {
          const bool finite = splat_value(g.operand(1).value).value_or(0) != 0;
          if (g.wants(0)) g.add(0, finite ? g.dy() / g.operand(1) : where_reached(g.dy(), g.dy() / g.operand(1)));
          if (g.wants(1)) g.add(1, where_reached(g.dy(), -(g.dy() * g.result() / g.operand(1))));
        },
    .low = 0.5,
    .high = 2,
};
constexpr OpDef kNeg{
    .name = "neg",
    .summary = "-x",
    .operands = 1,
    .cost = 1,
    .precision = Precision::promoted,
    .involution = true,
    .scalar = body<1>([](auto x) { return -x; }),
    .gradient = [](G& g) { g.add(0, -g.dy()); },
};
constexpr OpDef kAbs{
    .name = "abs",
    .summary = "|x|; gradient 0 at 0",
    .operands = 1,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return abs(x); }),
    .gradient = [](G& g) { g.add(0, g.dy() * kSign(g.operand(0))); },
};
constexpr OpDef kSign{
    .name = "sign",
    .summary = "-1, 0 or 1; NaN stays",
    .operands = 1,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return sign(x); }),
    .no_gradient = kPiecewise,
};
constexpr OpDef kRelu{
    .name = "relu",
    .summary = "max(x, 0); gradient 0 at 0",
    .operands = 1,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return maximum(x, constant(x, 0)); }),
    .gradient =
        [](G& g) {
          Var y = g.result();
          g.add(0, choose(y > y.builder->like(y, 0), g.dy(), 0));
        },
};
constexpr OpDef kMaximum{
    .name = "maximum",
    .summary = "the larger; NaN wins; equal operands share the gradient",
    .operands = 2,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return maximum(x, y); }),
    .gradient =
        [](G& g) {
          Var x = g.operand(0), y = g.operand(1), half = g.dy() * 0.5;
          if (g.wants(0)) g.add(0, choose(x == y, half, choose(y < x, g.dy(), 0)));
          if (g.wants(1)) g.add(1, choose(x == y, half, choose(x < y, g.dy(), 0)));
        },
};
constexpr OpDef kMinimum{
    .name = "minimum",
    .summary = "the smaller; NaN wins; equal operands share the gradient",
    .operands = 2,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return minimum(x, y); }),
    .gradient =
        [](G& g) {
          Var x = g.operand(0), y = g.operand(1), half = g.dy() * 0.5;
          if (g.wants(0)) g.add(0, choose(x == y, half, choose(x < y, g.dy(), 0)));
          if (g.wants(1)) g.add(1, choose(x == y, half, choose(y < x, g.dy(), 0)));
        },
};
constexpr OpDef kTruncatedRemainder{
    .name = "truncated_remainder",
    .summary = "x - y * trunc(x / y), the sign of x",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return truncated_remainder(x, y); }),
    .gradient =
        [](G& g) {
          Var x = g.operand(0), y = g.operand(1);
          g.add(0, g.dy());
          if (g.wants(1)) g.add(1, -(g.dy() * ((x - g.result()) / y)));
        },
    .low = 0.5,
    .high = 2,
};
constexpr OpDef kFlooredRemainder{
    .name = "floored_remainder",
    .summary = "x - y * floor(x / y), the sign of y",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return floored_remainder(x, y); }),
    .gradient =
        [](G& g) {
          Var x = g.operand(0), y = g.operand(1);
          g.add(0, g.dy());
          if (g.wants(1)) g.add(1, -(g.dy() * ((x - g.result()) / y)));
        },
    .low = 0.5,
    .high = 2,
};

// Rounding, choice, conversion.
constexpr OpDef kFloor{
    .name = "floor",
    .summary = "largest integer not above x",
    .operands = 1,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return floor(x); }),
    .no_gradient = kPiecewise,
};
constexpr OpDef kCeil{
    .name = "ceil",
    .summary = "smallest integer not below x",
    .operands = 1,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return ceil(x); }),
    .no_gradient = kPiecewise,
};
constexpr OpDef kRound{
    .name = "round",
    .summary = "nearest integer, halves to even",
    .operands = 1,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return round(x); }),
    .no_gradient = kPiecewise,
};
constexpr OpDef kDetach{
    .name = "detach",
    .summary = "x, as a value that no gradient goes through",
    .operands = 1,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return x; }),
    .detaches = true,
    .no_gradient = "gradients end here",
};
constexpr OpDef kSelect{
    .name = "select",
    .summary = "y where the condition holds, else z",
    .operands = 3,
    .typing = PointwiseTyping::select,
    .cost = 1,
    .precision = Precision::promoted,
    .rules = kSelectRules,
    .scalar = body<3>([](auto c, auto x, auto y) { return select(c, x, y); }),
    .gradient =
        [](G& g) {
          Var zero = g.dy().builder->like(g.dy(), 0);
          if (g.wants(1)) g.add(1, choose(g.operand(0), g.dy(), zero));
          if (g.wants(2)) g.add(2, choose(g.operand(0), zero, g.dy()));
        },
};
constexpr OpDef kCast{
    .name = "cast",
    .summary = "conversion of dtype: floats round to even, float to integer saturates",
    .operands = 1,
    .attributes = kCastAttributes,
    .typing = PointwiseTyping::cast,
    .cost = 1,
    .precision = Precision::promoted,
    .rules = kCastRules,
    .scalar = body<1>([](auto x) { return x; }),
    .gradient = [](G& g) { g.add(0, g.dy().builder->cast(g.dy(), g.operand(0).dtype())); },
};

inline constexpr const OpDef* kPointwiseOps[] = {
    &kAdd,
    &kSub,
    &kMul,
    &kDiv,
    &kNeg,
    &kAbs,
    &kSign,
    &kRelu,
    &kMaximum,
    &kMinimum,
    &kTruncatedRemainder,
    &kFlooredRemainder,
    &kFloor,
    &kCeil,
    &kRound,
    &kDetach,
    &kSelect,
    &kCast,
};

}  // namespace gcomp::ir::ops
