// Elementwise operators: arithmetic, comparison, logic, choice, conversion.
#include <cmath>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;
using ir::OpDef;

Var unary(NodeContext& n, const OpDef& op) { return op(n.var(0)); }
Var binary(NodeContext& n, const OpDef& op, std::size_t first = 0, std::size_t second = 1) {
  const auto x = broadcast_together(n, {n.var(first), n.var(second)});
  n.require(x[0].dtype() == x[1].dtype(), "operands are ", to_string(n.type(0)), " and ", to_string(n.type(1)),
            ", wanted one type");
  return op(x[0], x[1]);
}

template <const OpDef& op>
Items unary_row(NodeContext& n) {
  return unary(n, op);
}
template <const OpDef& op>
Items binary_row(NodeContext& n) {
  return binary(n, op);
}

/// Any number of operands, joined from the left.
template <const OpDef& op>
Items variadic_row(NodeContext& n) {
  n.require(n.inputs() > 0, "found no operands, wanted one or more");
  const auto x = broadcast_together(n, n.vars());
  Var joined = x[0];
  for (std::size_t i = 1; i < x.size(); ++i) joined = op(joined, x[i]);
  return joined;
}

Items mean_row(NodeContext& n) {
  Var sum{variadic_row<ops::kAdd>(n)[0].var};
  return sum / static_cast<double>(n.inputs());
}

/// x to a whole power by repeated multiplication: exact for negative bases, and with a gradient without logarithms.
Var whole_power(Var x, int power) {
  if (power == 1) return x;
  Var half = whole_power(x, power / 2), square = half * half;
  return power % 2 ? square * x : square;
}

std::optional<double> uniform(const Tensor* tensor) {
  if (!tensor || tensor->elements() == 0) return std::nullopt;
  for (std::int64_t i = 1; i < tensor->elements(); ++i)
    if (tensor->at(i) != tensor->at(0)) return std::nullopt;
  return tensor->at(0);
}

Items pow_row(NodeContext& n) {
  const DType base = n.type(0).dtype;
  const auto exponent = uniform(n.known(1));
  if (exponent && is_float(base)) {
    Var x = broadcast_to(n.var(0), broadcast_shape(n, {n.shape(0), n.shape(1)}));
    const double e = *exponent;
    if (e == 0) return x.builder->like(x, 1);
    if (e == std::floor(e) && std::fabs(e) <= 16) {
      Var power = whole_power(x, static_cast<int>(std::fabs(e)));
      return e < 0 ? 1.0 / power : power;
    }
    if (e == 0.5) return ops::kSqrt(x);
    if (e == -0.5) return ops::kRsqrt(x);
  }
  const auto x = broadcast_together(n, {n.var(0), n.var(1)});
  // The result has the base's type; the power itself is computed in whichever type is a float.
  const DType wide = is_float(base) ? base : is_float(x[1].dtype()) ? x[1].dtype() : base;
  return n.b().cast(ops::kPow(n.b().cast(x[0], wide), n.b().cast(x[1], wide)), base);
}

Items mod_row(NodeContext& n) { return binary(n, n.flag("fmod") ? ops::kTruncatedRemainder : ops::kFlooredRemainder); }

Items greater_row(NodeContext& n) { return binary(n, ops::kLess, 1, 0); }
Items greater_or_equal_row(NodeContext& n) { return binary(n, ops::kLessEqual, 1, 0); }

Items where_row(NodeContext& n) {
  const auto x = broadcast_together(n, {n.var(0), n.var(1), n.var(2)});
  n.require(x[1].dtype() == x[2].dtype(), "choices are ", to_string(n.type(1)), " and ", to_string(n.type(2)), ", wanted one type");
  return n.b().select(x[0], x[1], x[2]);
}

/// Casts to a narrower float round in the framework, and not where all floats compute in one type.
Items cast_row(NodeContext& n) {
  const std::int64_t to = n.integer("to", 0);
  const DType dtype = n.dtype_of(to);
  const bool narrows = to == ::onnx::TensorProto::FLOAT16 || to == ::onnx::TensorProto::BFLOAT16;
  Var x = n.var(0);
  if (narrows && n.options().training && !n.known(0) && is_float(x.dtype()) && size_of(dtype) > 2)
    n.repair(concat("'", n.name(), "' casts to 16 bits in the file and rounds nothing here: floats compute in ", name_of(dtype)));
  return n.b().cast(x, dtype);
}
Items cast_like_row(NodeContext& n) { return n.b().cast(n.var(0), n.type(1).dtype); }

Items reciprocal_row(NodeContext& n) { return 1.0 / n.var(0); }

/// A sum of squares or, but for a factor, their mean: a variance.
bool sums_squares(const ir::Value* x) {
  while (const ir::Node* node = x->producer) {
    if (node->op == &ops::kMul && ir::splat_value(node->operands[0])) x = node->operands[1];
    else if ((node->op == &ops::kMul || node->op == &ops::kDiv) && ir::splat_value(node->operands[1])) x = node->operands[0];
    else if (node->op == &ops::kReshape || node->op == &ops::kBroadcast) x = node->operands[0];
    else {
      const ir::Node* square = node->op == &ops::kReduceSum ? node->operands[0]->producer : nullptr;
      return square && square->op == &ops::kMul && square->operands[0] == square->operands[1];
    }
  }
  return false;
}

/// A standard deviation of equal values has the gradient 0 in PyTorch, as a norm of zeros has.
Items sqrt_row(NodeContext& n) {
  Var x = n.var(0);
  return sums_squares(x.value) ? root_of_squares(x) : ops::kSqrt(x);
}

/// log(sigmoid(x)) and log(softmax(x)) lose everything below the smallest float: their stable forms.
Items log_row(NodeContext& n) {
  Var x = n.var(0);
  const ir::Node* producer = x.value->producer;
  if (producer && producer->op == &ops::kSigmoid) return -ops::kSoftplus(-n.b().wrap(producer->operands[0]));
  if (producer && producer->op == &ops::kSoftmax)
    return n.b().apply(ops::kLogSoftmax, {n.b().wrap(producer->operands[0])}, {{"axis", producer->attributes.integer("axis")}});
  return ops::kLog(x);
}

Items is_inf_row(NodeContext& n) {
  Var x = n.var(0);
  const bool positive = n.flag("detect_positive", true), negative = n.flag("detect_negative", true);
  Var infinite = ops::kIsInf(x), zero = n.b().like(x, 0);
  if (positive && negative) return infinite;
  if (positive) return ops::kAnd(infinite, zero < x);
  if (negative) return ops::kAnd(infinite, x < zero);
  return n.b().full({DType::boolean, x.shape()}, 0);
}

Items bit_shift_row(NodeContext& n) {
  const std::string direction = n.text("direction", "");
  n.require(direction == "LEFT" || direction == "RIGHT", "direction is '", direction, "', wanted LEFT or RIGHT");
  return binary(n, direction == "LEFT" ? ops::kShiftLeft : ops::kShiftRight);
}

/// Bounds as numbers where they are known: the gradient is then 0 at the bound.
Var clip(NodeContext& n, Var x, std::optional<double> low, std::optional<double> high) {
  if (low && high && *low > *high) return n.b().like(x, *high);
  Var y = x;
  if (high) y = n.b().select(n.b().like(x, *high) <= x, n.b().like(x, *high), y);
  if (low) y = n.b().select(x <= n.b().like(x, *low), n.b().like(x, *low), y);
  return y;
}

Items clip_attributes_row(NodeContext& n) {
  const auto bound = [&](const char* name) { return n.has_attribute(name) ? std::optional(n.real(name, 0)) : std::nullopt; };
  return clip(n, n.var(0), bound("min"), bound("max"));
}

Items clip_row(NodeContext& n) {
  Var x = n.var(0);
  if ((!n.has(1) || n.known(1)) && (!n.has(2) || n.known(2)))
    return clip(n, x, n.has(1) ? std::optional(n.number(1, "min")) : std::nullopt,
                n.has(2) ? std::optional(n.number(2, "max")) : std::nullopt);
  const auto bound = [&](std::size_t i) { return broadcast_to(n.b().reshape(n.var(i), {}), x.shape()); };
  if (n.has(1)) x = ops::kMaximum(x, bound(1));
  if (n.has(2)) x = ops::kMinimum(x, bound(2));
  return x;
}

template <const OpDef& op>
Items extremum_row(NodeContext& n) {
  const Tensor* bound = n.inputs() == 2 && n.has_kink(Kink::bound) ? n.known(1) : nullptr;
  if (!bound || bound->elements() != 1 || n.rank(1) > n.rank(0)) return variadic_row<op>(n);
  const std::optional<double> number = bound->at(0);
  return &op == &ops::kMaximum ? clip(n, n.var(0), number, std::nullopt) : clip(n, n.var(0), std::nullopt, number);
}

Items identity_row(NodeContext& n) {
  n.require(n.has(0), "input 0 is missing");
  return n.any(0);
}

constexpr Row kElementwiseRows[] = {
    {"Add", 7, binary_row<ops::kAdd>},
    {"Sub", 7, binary_row<ops::kSub>},
    {"Mul", 7, binary_row<ops::kMul>},
    {"Div", 7, binary_row<ops::kDiv>},
    {"Mod", 10, mod_row},
    {"Pow", 7, pow_row},
    {"Neg", 6, unary_row<ops::kNeg>},
    {"Abs", 6, unary_row<ops::kAbs>},
    {"Sign", 9, unary_row<ops::kSign>},
    {"Max", 8, extremum_row<ops::kMaximum>},
    {"Min", 8, extremum_row<ops::kMinimum>},
    {"Max", 6, extremum_row<ops::kMaximum>},
    {"Min", 6, extremum_row<ops::kMinimum>},
    {"Sum", 6, variadic_row<ops::kAdd>},
    {"Mean", 6, mean_row},
    {"Exp", 6, unary_row<ops::kExp>},
    {"Log", 6, log_row},
    {"Sqrt", 6, sqrt_row},
    {"Reciprocal", 6, reciprocal_row},
    {"Sin", 7, unary_row<ops::kSin>},
    {"Cos", 7, unary_row<ops::kCos>},
    {"Tan", 7, unary_row<ops::kTan>},
    {"Asin", 7, unary_row<ops::kAsin>},
    {"Acos", 7, unary_row<ops::kAcos>},
    {"Atan", 7, unary_row<ops::kAtan>},
    {"Sinh", 9, unary_row<ops::kSinh>},
    {"Cosh", 9, unary_row<ops::kCosh>},
    {"Asinh", 9, unary_row<ops::kAsinh>},
    {"Acosh", 9, unary_row<ops::kAcosh>},
    {"Atanh", 9, unary_row<ops::kAtanh>},
    {"Erf", 9, unary_row<ops::kErf>},
    {"Floor", 6, unary_row<ops::kFloor>},
    {"Ceil", 6, unary_row<ops::kCeil>},
    {"Round", 11, unary_row<ops::kRound>},
    {"IsNaN", 9, unary_row<ops::kIsNan>},
    {"IsInf", 10, is_inf_row},
    {"Equal", 7, binary_row<ops::kEqual>},
    {"Less", 7, binary_row<ops::kLess>},
    {"LessOrEqual", 12, binary_row<ops::kLessEqual>},
    {"Greater", 7, greater_row},
    {"GreaterOrEqual", 12, greater_or_equal_row},
    {"And", 7, binary_row<ops::kAnd>},
    {"Or", 7, binary_row<ops::kOr>},
    {"Xor", 7, binary_row<ops::kXor>},
    {"Not", 1, unary_row<ops::kNot>},
    {"BitwiseAnd", 18, binary_row<ops::kBitAnd>},
    {"BitwiseOr", 18, binary_row<ops::kBitOr>},
    {"BitwiseXor", 18, binary_row<ops::kBitXor>},
    {"BitwiseNot", 18, unary_row<ops::kBitNot>},
    {"BitShift", 11, bit_shift_row},
    {"Where", 9, where_row},
    {"Cast", 6, cast_row},
    {"CastLike", 15, cast_like_row},
    {"Clip", 6, clip_attributes_row},
    {"Clip", 11, clip_row},
    {"Identity", 1, identity_row, false},
};

}  // namespace

std::span<const Row> elementwise_rows() { return kElementwiseRows; }

}  // namespace gcomp::frontend
