#include "passes/training/loss_scaling.h"

#include <algorithm>
#include <limits>

#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr double kLargestLossScale = 0x1p127;  // of f32

/// max |x| as f32[]; NaN goes through.
Var magnitude(Builder& b, Var x) {
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  return b.cast(b.max(ops::kAbs(x), axes), DType::f32);
}

Var all_finite(Builder& b, Value* loss, const std::vector<Value*>& gradients, Value* norm) {
  if (norm) {
    const Var worst = ops::kMaximum(b.cast(ops::kAbs(b.wrap(loss)), DType::f64), b.wrap(norm));
    return worst < b.like(worst, std::numeric_limits<double>::infinity());
  }
  Var worst = magnitude(b, b.wrap(loss));
  for (Value* gradient : gradients)
    if (gradient->type.elements() > 0) worst = ops::kMaximum(worst, magnitude(b, b.wrap(gradient)));
  return worst < b.like(worst, std::numeric_limits<double>::infinity());
}

Var within_limits(Builder& b, Value* loss, Value* norm) {
  const auto within = [&](Value* value, const char* limit) {
    Value* state = b.graph().add_state({DType::f64, {}}, limit, StateRole::counter, std::numeric_limits<double>::infinity());
    return b.cast(b.wrap(value), DType::f64) <= b.wrap(state);
  };
  Var low_loss = within(loss, kLossLimit);
  return ops::kAnd(low_loss, within(norm, kNormLimit));
}

void guard_updates(Builder& b, Var finite, const std::vector<Value*>& attempts) {
  Graph& graph = b.graph();
  struct Update {
    Value *state, *value;
    SharedText origin;
  };
  std::vector<Update> updates;
  for (const auto& node : graph.nodes())
    if (node->op->kind == Kind::update) updates.push_back({node->operands[0], node->operands[1], node->origin});
  graph.remove_updates();
  for (const auto& [state, value, origin] : updates) {
    b.set_origin(origin);
    const bool always = std::find(attempts.begin(), attempts.end(), state) != attempts.end();
    Var old = b.wrap(state), made = b.wrap(value);
    b.update(state, always ? made : b.select(b.broadcast(finite, old.shape(), {}), made, old));
  }
}

/// Updates scale and counter; gives the new scale.
Var adjust_scale(Builder& b, Value* scale, Var finite) {
  Value* counter = b.graph().add_state({DType::i64, {}}, "good_steps", StateRole::counter, 0.0);
  Var old = b.wrap(scale), good = b.wrap(counter) + 1.0, zero = b.like(good, 0);
  Var doubles = b.like(good, static_cast<double>(kGoodStepsToDouble)) <= good;
  Var doubled = old * 2.0, grown = b.select(doubles, ops::kMinimum(doubled, b.like(old, kLargestLossScale)), old);
  Var next = b.select(finite, grown, old * 0.5);
  b.update(scale, next);
  b.update(counter, b.select(finite, b.select(doubles, zero, good), zero));
  return next;
}

}  // namespace

ScaledLoss scale_loss(Graph& graph, Value* loss, const LossScaling& scaling) {
  Builder b(graph, "loss scale");
  const TensorType type{DType::f32, {}};
  Var scale = scaling.constant ? b.full(type, *scaling.constant)
                               : b.wrap(graph.add_state(type, "loss_scale", StateRole::optimizer, kFirstLossScale));
  Var wrapped = b.wrap(loss);
  return {scale.value, (wrapped * b.cast(scale, wrapped.dtype())).value};
}

std::vector<Value*> unscale(Graph& graph, const std::vector<Value*>& gradients, Value* scale) {
  Builder b(graph, "loss scale");
  Var inverse = 1.0 / b.wrap(scale);
  std::vector<Value*> unscaled;
  for (Value* gradient : gradients) {
    Var g = b.wrap(gradient);
    Var made = g * b.broadcast(b.cast(inverse, g.dtype()), g.shape(), {});
    if (gradient->producer) graph.take_name(gradient, made.value);  // a state keeps its own, by which others know it
    unscaled.push_back(made.value);
  }
  return unscaled;
}

SkipReport skip_non_finite(Graph& graph, const ScaledLoss& scaled, Value* loss, const std::vector<Value*>& gradients,
                           const std::vector<Value*>& attempts, Value* norm, SkipWhen when) {
  const char* const origin = scaled.scale ? "loss scale" : "skipped steps";
  Builder b(graph, origin);
  Var finite = all_finite(b, loss, gradients, norm);
  check_internal(norm || when == SkipWhen::not_finite, "skipped steps: limits without a norm");
  Var kept = when == SkipWhen::beyond_limits ? ops::kAnd(finite, within_limits(b, loss, norm)) : finite;
  guard_updates(b, kept, attempts);
  b.set_origin(origin);
  SkipReport report;
  if (scaled.scale) {
    const bool dynamic = graph.find_state(scaled.scale) != nullptr;
    report.scale = dynamic ? adjust_scale(b, scaled.scale, finite).value : scaled.scale;
  }
  report.skipped = b.cast(ops::kNot(kept), DType::i64).value;
  return report;
}

}  // namespace gcomp::passes
