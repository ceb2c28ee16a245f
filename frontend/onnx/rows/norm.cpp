// Normalizations.
#include <algorithm>

#include "frontend/formulas/norms.h"
#include "frontend/onnx/forms.h"
#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;
using formulas::normalized;
using formulas::per_channel;

/// Population variance for ONNX's training form from opset 14, also where gcomp wrote it in inference form since; PyTorch's
/// unbiased one for all that PyTorch trained.
bool unbiased_running_variance(NodeContext& n, bool training_form) {
  const std::string& choice = n.options().batchnorm_variance;
  if (choice == "unbiased") return true;
  if (choice == "population") return false;
  return !(training_form && n.opset() >= 14) && !keeps_population_variance(n.state().source.model, n.node());
}

/// A norm that is used again moves what its first use made of the statistic.
void update_statistic(NodeContext& n, std::size_t input, Var batch, double momentum, std::vector<Var>& running) {
  Var old = n.var(input);
  ir::Value* const state = n.b().graph().find_state(old.value) ? old.value : nullptr;
  if (const Var moved = n.state().moved_statistic(state)) old = moved;
  Var next = old * momentum + n.b().cast(batch, old.dtype()) * (1 - momentum);
  running.push_back(next);
  if (state) n.state().move_statistic(state, next, n.name());
}

Items batch_statistics(NodeContext& n, bool training_form) {
  Builder& b = n.b();
  Var x = n.var(0), scale = n.var(1), bias = n.var(2);
  const double epsilon = n.real("epsilon", 1e-5), momentum = n.real("momentum", 0.9);
  n.require(x.rank() >= 2, "input is ", to_string(x.type()), ", wanted [n, c, ...]");
  const WholeBatch& batch = n.options().batch;
  const std::int64_t values = batch.shards * (element_count(x.shape()) / std::max<std::int64_t>(1, x.dim(1)));
  // f16 and bf16 compute in f32, so that the statistics are sound.
  const DType wide = compute_type(x.dtype());
  n.require(values > 1, "one value per channel has no variance to train on: the input is ", to_string(x.type()));
  const auto results = b.apply_many(ops::kBatchNorm, {b.cast(x, wide), b.cast(scale, wide), b.cast(bias, wide)},
                                    {{"epsilon", epsilon}, {"shards", batch.shards}, {"lock_step", batch.lock_step}});
  const bool unbiased = unbiased_running_variance(n, training_form);
  Var variance = results[2];
  if (unbiased) variance = variance * (static_cast<double>(values) / static_cast<double>(values - 1));
  std::vector<Var> running;
  update_statistic(n, 3, results[1], momentum, running);
  update_statistic(n, 4, variance, momentum, running);
  if (!training_form)
    n.repair(concat("BatchNormalization '", n.name(),
                    "' is in inference form: it trains on batch statistics, its running variance ",
                    unbiased ? "unbiased" : "of the population"));
  return Items::of({b.cast(results[0], x.dtype()), running[0], running[1], results[1], results[2]});
}

Items running_statistics(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const DType wide = compute_type(x.dtype());
  auto channel = [&](std::size_t i) { return b.cast(n.var(i), wide); };
  Var factor = channel(1) * ops::kRsqrt(channel(4) + n.real("epsilon", 1e-5));
  Var shift = channel(2) - channel(3) * factor;
  Var y = b.cast(x, wide) * per_channel(factor, x.shape()) + per_channel(shift, x.shape());
  // What the training form updates stays as it is.
  return {Item{b.cast(y, x.dtype()), nullptr, nullptr}, n.item(3), n.item(4), n.item(3), n.item(4)};
}

Items batch_normalization_row(NodeContext& n) {
  n.require(n.inputs() == 5 && n.rank(0) >= 1, "found ", n.inputs(), " operands, wanted x, scale, bias, mean and variance");
  if (n.opset() < 9 && !n.flag("spatial", true)) n.unsupported("statistics per activation (spatial = 0) are not supported");
  const bool form = batch_norm_trains(n.node(), n.opset());
  ++n.state().forms.of(form).batch_norms;
  return n.trains(form) && !n.has_frozen_statistics() ? batch_statistics(n, form) : running_statistics(n);
}

Items layer_normalization_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0), scale = n.var(1);
  const std::int64_t axis = n.axis(n.integer("axis", -1), x.rank());
  const double epsilon = n.real("epsilon", 1e-5);
  const DType stash = n.integer("stash_type", 1) == 1 ? compute_type(x.dtype()) : x.dtype();
  const Shape row(x.shape().begin() + axis, x.shape().end());
  Var wide = b.cast(x, stash), y;
  if (stash == x.dtype()) {
    y = b.apply(ops::kLayerNorm,
                {x, broadcast_to(scale, row), n.has(2) ? broadcast_to(n.var(2), row) : b.full({x.dtype(), row}, 0)},
                {{"axis", axis}, {"epsilon", epsilon}});
  } else {
    // Statistics and normalisation are wide; the result is rounded to X's type before scale and bias.
    y = b.cast(normalized(wide, axis, epsilon), x.dtype()) * broadcast_to(scale, x.shape());
    if (n.has(2)) y = y + broadcast_to(n.var(2), x.shape());
  }
  std::vector<Var> results{y};
  if (n.wants(1) || n.wants(2)) {
    Integers axes;
    for (std::int64_t i = axis; i < x.rank(); ++i) axes.push_back(i);
    Var mean = b.mean(wide, axes, true), centered = wide - b.broadcast(mean, x.shape());
    results.push_back(mean);
    results.push_back(ops::kRsqrt(b.mean(centered * centered, axes, true) + epsilon));
  }
  return Items::of(results);
}

Items rms_normalization_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", -1), x.rank());
  const DType stash = n.integer("stash_type", 1) == 1 ? compute_type(x.dtype()) : x.dtype();
  Var normed = formulas::rms_normalized(b.cast(x, stash), axis, n.real("epsilon", 1e-5));
  return b.cast(normed, n.type(1).dtype) * broadcast_to(n.var(1), x.shape());
}

/// Scales and shifts each channel, unless that does nothing.
Var scale_channels(NodeContext& n, Var y, std::size_t scale, std::size_t bias) {
  Var s = n.var(scale), t = n.var(bias);
  if (uniform_value(s) != 1.0) y = y * per_channel(s, y.shape());
  if (uniform_value(t) != 0.0) y = y + per_channel(t, y.shape());
  return y;
}

Items instance_normalization_row(NodeContext& n) {
  Var x = n.var(0);
  n.require(x.rank() >= 3, "input is ", to_string(x.type()), ", wanted [n, c, ...]");
  Var y = formulas::group_normalized(x, x.dim(1), n.real("epsilon", 1e-5));
  return scale_channels(n, n.b().reshape(y, x.shape()), 1, 2);
}

Items group_normalization_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0), scale = n.var(1), bias = n.var(2);
  const std::int64_t groups = n.integer("num_groups", 0);
  n.require(x.rank() >= 2 && groups > 0 && x.dim(1) % groups == 0, "input is ", to_string(x.type()),
            ", which does not divide into ", groups, " groups");
  const DType wide = n.opset() >= 21 && n.integer("stash_type", 1) == 1 ? compute_type(x.dtype()) : x.dtype();
  Var y = b.cast(formulas::group_normalized(b.cast(x, wide), groups, n.real("epsilon", 1e-5)), x.dtype());
  if (scale.dim(0) == groups && n.opset() < 21)
    return b.reshape(y * per_channel(scale, y.shape()) + per_channel(bias, y.shape()), x.shape());
  y = b.reshape(y, x.shape());
  return y * per_channel(scale, x.shape()) + per_channel(bias, x.shape());
}

Items mean_variance_normalization_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const Integers axes = n.axes(n.integers("axes", {0, 2, 3}), x.rank());
  Var centered = x - b.broadcast(b.mean(x, axes, true), x.shape());
  Var deviation = ops::kSqrt(b.mean(centered * centered, axes, true));
  return centered / b.broadcast(deviation + 1e-9, x.shape());
}

Items lp_normalization_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", -1), x.rank()), p = n.integer("p", 2);
  n.require(p == 1 || p == 2, "p is ", p, ", wanted 1 or 2");
  Var norm = p == 1 ? b.sum(ops::kAbs(x), {axis}, true) : ops::kSqrt(b.sum(x * x, {axis}, true));
  Var wide = b.broadcast(norm, x.shape());
  // A zero vector stays zero.
  Var none = wide == b.like(wide, 0);
  return b.select(none, b.like(x, 0), x / b.select(none, b.like(wide, 1), wide));
}

/// x / (bias + alpha / size * sum of squares over neighbouring channels)^beta; an even size has its extra neighbour behind.
Items lrn_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t size = n.integer("size", 0);
  n.require(x.rank() >= 2 && size > 0, "input is ", to_string(x.type()), ", size is ", size);
  std::int64_t plane = 1;
  for (std::int64_t i = 2; i < x.rank(); ++i) plane *= x.dim(i);
  Var squares = b.transpose(b.reshape(x * x, {x.dim(0), x.dim(1), plane}), {0, 2, 1});
  const ir::Attributes window{{"kernel", Integers{size}},
                              {"strides", Integers{1}},
                              {"dilations", Integers{1}},
                              {"low", Integers{(size - 1) / 2}},
                              {"high", Integers{size - 1 - (size - 1) / 2}}};
  Var sums = b.reshape(b.transpose(b.sum(b.apply(ops::kWindow, {squares}, window), {3}), {0, 2, 1}), x.shape());
  Var base = sums * (n.real("alpha", 1e-4) / static_cast<double>(size)) + n.real("bias", 1);
  return x * ops::kPow(base, b.like(base, -n.real("beta", 0.75)));
}

constexpr Row kNormRows[] = {
    {"BatchNormalization", 7, batch_normalization_row, false},
    {"LayerNormalization", 17, layer_normalization_row},
    {"RMSNormalization", 23, rms_normalization_row},
    {"InstanceNormalization", 6, instance_normalization_row},
    {"GroupNormalization", 18, group_normalization_row},
    {"MeanVarianceNormalization", 9, mean_variance_normalization_row},
    {"LpNormalization", 1, lp_normalization_row},
    {"LRN", 1, lrn_row},
};

}  // namespace

std::span<const Row> norm_rows() { return kNormRows; }

}  // namespace gcomp::frontend
