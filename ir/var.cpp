#include "gcomp/var.h"

#include "gcomp/ops.h"
#include "ir/base/dtype.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/builder.h"
#include "ir/definition_run.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"

namespace gcomp {

ir::Builder& BuilderOf::operator*() const {
  check_user(builder_ != nullptr, "an operand is a Var that stands for no value");
  ir::require_running(run_);
  return *builder_;
}

const TensorType& Var::type() const {
  check_user(value != nullptr, "an operand is a Var that stands for no value");
  ir::require_running(builder.run());
  return value->type;
}

namespace {

/// A constant of the other operand's type, which must have the number.
Var number_like(Var other, double number) {
  const DType dtype = other.dtype();
  if (!is_float(dtype)) {
    std::byte held[8];
    store_from_double(dtype, held, 0, number);
    check_user(load_as_double(dtype, held, 0) == number, number, " is no number of ", name_of(dtype),
               ", the type of the other operand ", to_string(other.type()), "; cast that first");
  }
  return other.builder->like(other, number);
}

}  // namespace

Var operator+(Var a, Var b) { return a.builder->apply(ir::ops::kAdd, {a, b}); }
Var operator-(Var a, Var b) { return a.builder->apply(ir::ops::kSub, {a, b}); }
Var operator*(Var a, Var b) { return a.builder->apply(ir::ops::kMul, {a, b}); }
Var operator/(Var a, Var b) { return a.builder->apply(ir::ops::kDiv, {a, b}); }
Var operator-(Var a) { return a.builder->apply(ir::ops::kNeg, {a}); }
Var operator+(Var a, double b) { return a + number_like(a, b); }
Var operator+(double a, Var b) { return number_like(b, a) + b; }
Var operator-(Var a, double b) { return a - number_like(a, b); }
Var operator-(double a, Var b) { return number_like(b, a) - b; }
Var operator*(Var a, double b) { return a * number_like(a, b); }
Var operator*(double a, Var b) { return number_like(b, a) * b; }
Var operator/(Var a, double b) { return a / number_like(a, b); }
Var operator/(double a, Var b) { return number_like(b, a) / b; }
Var operator<(Var a, Var b) { return a.builder->apply(ir::ops::kLess, {a, b}); }
Var operator<=(Var a, Var b) { return a.builder->apply(ir::ops::kLessEqual, {a, b}); }
Var operator>(Var a, Var b) { return b < a; }
Var operator>=(Var a, Var b) { return b <= a; }
Var operator==(Var a, Var b) { return a.builder->apply(ir::ops::kEqual, {a, b}); }

namespace ops {
namespace {

std::int64_t from_front(Var x, std::int64_t axis) { return axis < 0 ? axis + x.rank() : axis; }

std::vector<std::int64_t> from_front(Var x, std::vector<std::int64_t> axes) {
  for (std::int64_t& axis : axes) axis = from_front(x, axis);
  return axes;
}

Var reduce(const ir::OpDef& op, Var x, std::vector<std::int64_t> axes, Axes reduced) {
  return x.builder->reduce(op, x, from_front(x, std::move(axes)), reduced == Axes::kept);
}

Var along(const ir::OpDef& op, Var x, std::int64_t axis) { return x.builder->apply(op, {x}, {{"axis", from_front(x, axis)}}); }

}  // namespace

Var abs(Var x) { return ir::ops::kAbs(x); }
Var sign(Var x) { return ir::ops::kSign(x); }
Var floor(Var x) { return ir::ops::kFloor(x); }
Var ceil(Var x) { return ir::ops::kCeil(x); }
Var round(Var x) { return ir::ops::kRound(x); }
Var detach(Var x) { return ir::ops::kDetach(x); }
Var exp(Var x) { return ir::ops::kExp(x); }
Var expm1(Var x) { return ir::ops::kExpm1(x); }
Var log(Var x) { return ir::ops::kLog(x); }
Var log1p(Var x) { return ir::ops::kLog1p(x); }
Var sqrt(Var x) { return ir::ops::kSqrt(x); }
Var rsqrt(Var x) { return ir::ops::kRsqrt(x); }
Var erf(Var x) { return ir::ops::kErf(x); }
Var relu(Var x) { return ir::ops::kRelu(x); }
Var sigmoid(Var x) { return ir::ops::kSigmoid(x); }
Var softplus(Var x) { return ir::ops::kSoftplus(x); }
Var sin(Var x) { return ir::ops::kSin(x); }
Var cos(Var x) { return ir::ops::kCos(x); }
Var tan(Var x) { return ir::ops::kTan(x); }
Var asin(Var x) { return ir::ops::kAsin(x); }
Var acos(Var x) { return ir::ops::kAcos(x); }
Var atan(Var x) { return ir::ops::kAtan(x); }
Var sinh(Var x) { return ir::ops::kSinh(x); }
Var cosh(Var x) { return ir::ops::kCosh(x); }
Var tanh(Var x) { return ir::ops::kTanh(x); }
Var asinh(Var x) { return ir::ops::kAsinh(x); }
Var acosh(Var x) { return ir::ops::kAcosh(x); }
Var atanh(Var x) { return ir::ops::kAtanh(x); }
Var pow(Var x, Var y) { return ir::ops::kPow(x, y); }
Var maximum(Var x, Var y) { return ir::ops::kMaximum(x, y); }
Var minimum(Var x, Var y) { return ir::ops::kMinimum(x, y); }
Var remainder(Var x, Var y) { return ir::ops::kFlooredRemainder(x, y); }
Var logical_and(Var x, Var y) { return ir::ops::kAnd(x, y); }
Var logical_or(Var x, Var y) { return ir::ops::kOr(x, y); }
Var is_nan(Var x) { return ir::ops::kIsNan(x); }
Var is_inf(Var x) { return ir::ops::kIsInf(x); }
Var logical_not(Var x) { return ir::ops::kNot(x); }

Var select(Var condition, Var x, Var y) { return x.builder->select(condition, x, y); }
Var cast(Var x, DType to) { return x.builder->cast(x, to); }
Var like(Var x, double value) { return x.builder->like(x, value); }

Var reshape(Var x, Shape shape) { return x.builder->reshape(x, std::move(shape)); }
Var transpose(Var x, std::vector<std::int64_t> permutation) {
  return x.builder->transpose(x, from_front(x, std::move(permutation)));
}
Var broadcast(Var x, Shape shape) { return x.builder->broadcast(x, std::move(shape)); }
Var broadcast(Var x, Shape shape, std::vector<std::int64_t> axes) {
  return x.builder->broadcast(x, std::move(shape), std::move(axes));
}
Var slice(Var x, std::vector<std::int64_t> starts, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps) {
  return x.builder->slice(x, std::move(starts), std::move(sizes), std::move(steps));
}
Var pad(Var x, std::vector<std::int64_t> low, std::vector<std::int64_t> high, double value) {
  return x.builder->pad(x, std::move(low), std::move(high), value);
}
Var concat(std::vector<Var> parts, std::int64_t axis) {
  check_user(!parts.empty(), "concat: no parts");
  const Var first = parts[0];
  return first.builder->concat(std::move(parts), from_front(first, axis));
}

Var sum(Var x, std::vector<std::int64_t> axes, Axes reduced) { return reduce(ir::ops::kReduceSum, x, std::move(axes), reduced); }
Var max(Var x, std::vector<std::int64_t> axes, Axes reduced) { return reduce(ir::ops::kReduceMax, x, std::move(axes), reduced); }
Var min(Var x, std::vector<std::int64_t> axes, Axes reduced) { return reduce(ir::ops::kReduceMin, x, std::move(axes), reduced); }
Var arg_max(Var x, std::vector<std::int64_t> axes, Axes reduced) { return reduce(ir::ops::kArgMax, x, std::move(axes), reduced); }
Var mean(Var x, std::vector<std::int64_t> axes, Axes reduced) {
  return x.builder->mean(x, from_front(x, std::move(axes)), reduced == Axes::kept);
}
Var cumulative_sum(Var x, std::int64_t axis) { return along(ir::ops::kCumulativeSum, x, axis); }
Var softmax(Var x, std::int64_t axis) { return along(ir::ops::kSoftmax, x, axis); }
Var log_softmax(Var x, std::int64_t axis) { return along(ir::ops::kLogSoftmax, x, axis); }

Var matmul(Var a, Var b) { return a.builder->matmul(a, b); }
Var gather(Var data, Var indices, std::int64_t axis) { return data.builder->gather(data, indices, from_front(data, axis)); }

std::vector<Var> apply(std::string_view op, const std::vector<Var>& operands, std::string_view attributes) {
  const ir::OpDef* definition = ir::find_op(op);
  if (!definition) {
    std::vector<std::string> names;
    for (const ir::OpDef* known : ir::ops::kTable) names.emplace_back(known->name);
    throw UserError(gcomp::concat("there is no op '", op, "'", did_you_mean(op, names)));
  }
  check_user(!operands.empty(), "op '", op, "': no operands");
  return operands[0].builder->apply_many(*definition, operands, ir::parse_attributes(*definition, attributes));
}

}  // namespace ops
}  // namespace gcomp
