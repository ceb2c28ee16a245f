// Comparisons, logic and bits, pointwise: what has no gradient.
#pragma once

#include "ir/ops/pointwise.h"

namespace gcomp::ir::ops {

// Comparison.
constexpr OpDef kLess{
    .name = "less",
    .summary = "x < y",
    .operands = 2,
    .typing = PointwiseTyping::predicate,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return x < y; }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kLessEqual{
    .name = "less_equal",
    .summary = "x <= y",
    .operands = 2,
    .typing = PointwiseTyping::predicate,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return x <= y; }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kEqual{
    .name = "equal",
    .summary = "x == y",
    .operands = 2,
    .typing = PointwiseTyping::predicate,
    .cost = 1,
    .precision = Precision::promoted,
    .commutative = true,
    .equality = true,
    .scalar = body<2>([](auto x, auto y) { return x == y; }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kIsNan{
    .name = "is_nan",
    .summary = "whether x is NaN",
    .operands = 1,
    .typing = PointwiseTyping::predicate,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return is_nan(x); }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kIsInf{
    .name = "is_inf",
    .summary = "whether x is infinite",
    .operands = 1,
    .typing = PointwiseTyping::predicate,
    .cost = 1,
    .precision = Precision::promoted,
    .scalar = body<1>([](auto x) { return is_inf(x); }),
    .no_gradient = kDiscrete,
};

// Truth values.
constexpr OpDef kAnd{
    .name = "and",
    .summary = "both",
    .operands = 2,
    .typing = PointwiseTyping::logical,
    .cost = 1,
    .precision = Precision::promoted,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return x && y; }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kOr{
    .name = "or",
    .summary = "either or both",
    .operands = 2,
    .typing = PointwiseTyping::logical,
    .cost = 1,
    .precision = Precision::promoted,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return x || y; }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kXor{
    .name = "xor",
    .summary = "exactly one",
    .operands = 2,
    .typing = PointwiseTyping::logical,
    .cost = 1,
    .precision = Precision::promoted,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return x != y; }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kNot{
    .name = "not",
    .summary = "negation",
    .operands = 1,
    .typing = PointwiseTyping::logical,
    .cost = 1,
    .precision = Precision::promoted,
    .involution = true,
    .scalar = body<1>([](auto x) { return !x; }),
    .no_gradient = kDiscrete,
};

// Bits of integers.
constexpr OpDef kBitAnd{
    .name = "bit_and",
    .summary = "bitwise and of integers",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return bit_and(x, y); }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kBitOr{
    .name = "bit_or",
    .summary = "bitwise or of integers",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return bit_or(x, y); }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kBitXor{
    .name = "bit_xor",
    .summary = "bitwise exclusive or of integers",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .commutative = true,
    .scalar = body<2>([](auto x, auto y) { return bit_xor(x, y); }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kBitNot{
    .name = "bit_not",
    .summary = "bitwise complement of an integer",
    .operands = 1,
    .cost = 2,
    .precision = Precision::promoted,
    .involution = true,
    .scalar = body<1>([](auto x) { return bit_not(x); }),
    .no_gradient = kDiscrete,
};
constexpr OpDef kShiftLeft{
    .name = "shift_left",
    .summary = "x << y; 0 where y reaches the width",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return shift_left(x, y); }),
    .no_gradient = kDiscrete,
    .low = 0,
};
constexpr OpDef kShiftRight{
    .name = "shift_right",
    .summary = "x >> y; 0 where y reaches the width",
    .operands = 2,
    .cost = 2,
    .precision = Precision::promoted,
    .scalar = body<2>([](auto x, auto y) { return shift_right(x, y); }),
    .no_gradient = kDiscrete,
    .low = 0,
};

inline constexpr const OpDef* kLogicOps[] = {
    &kLess, &kLessEqual, &kEqual, &kIsNan,  &kIsInf,  &kAnd,       &kOr,         &kXor,
    &kNot,  &kBitAnd,    &kBitOr, &kBitXor, &kBitNot, &kShiftLeft, &kShiftRight,
};

}  // namespace gcomp::ir::ops
