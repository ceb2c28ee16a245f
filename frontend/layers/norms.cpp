// Normalizations with PyTorch's parameters.
#include "frontend/formulas/norms.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "frontend/layers/impl.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

namespace table = ir::ops;
using frontend::layer;
using frontend::formulas::per_channel;

void require_channels(const std::string& name, Var x, std::int64_t least_rank) {
  check_user(x.rank() >= least_rank && is_float(x.dtype()), layer(name), "the input is ", to_string(x.type()),
             ", wanted floats [batch, channels, ...]", least_rank > 2 ? " with at least one more axis" : "");
}

/// The first of the last `axes` axes.
std::int64_t first_of_last(const std::string& name, Var x, std::int64_t axes) {
  check_user(axes >= 1 && axes <= x.rank() && is_float(x.dtype()), layer(name), "the input is ", to_string(x.type()),
             ", wanted floats with at least the ", axes, " axes that are normalised (one or more)");
  return x.rank() - axes;
}

/// Of the type that the values have; in mixed precision they are kept, and normalised, in f32.
double machine_epsilon(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

}  // namespace

Var Layers::batch_norm(const std::string& name, Var x, BatchNormOptions options) {
  impl_.builder.set_origin(name);
  require_channels(name, x, 2);
  const Shape channel{x.dim(1)};
  const TensorType row{x.dtype(), channel};
  Var scale = options.affine ? parameter(name + ".weight", channel, {1}) : impl_.builder.full(row, 1);
  Var bias = options.affine ? parameter(name + ".bias", channel, {0}) : impl_.builder.full(row, 0);
  const bool tracks = options.track_running_stats;
  const auto statistic = [&](const char* suffix, double value) {
    return tracks ? impl_.state(name + suffix, channel, frontend::all_of(value), ir::StateRole::running_statistic) : nullptr;
  };
  ir::Value* mean = statistic(".running_mean", 0);
  ir::Value* variance = statistic(".running_var", 1);
  const auto spread = [&](Var v) { return impl_.builder.broadcast(v, x.shape(), {1}); };
  // What is frozen does not change, and neither is it mixed with what does.
  const auto is_fixed = [&](ir::Value* s) { return !impl_.report_of(s->name).updated; };
  const bool fixed = tracks && (is_fixed(mean) || is_fixed(variance));
  if (fixed) impl_.report_of(mean->name).updated = impl_.report_of(variance->name).updated = false;
  if (tracks && (!training() || fixed)) {
    Var centered = x - spread(impl_.builder.wrap(mean));
    return centered * spread(table::kRsqrt(impl_.builder.wrap(variance) + options.eps) * scale) + spread(bias);
  }
  const frontend::WholeBatch& batch = impl_.options.batch;
  const std::int64_t values = batch.shards * (x.type().elements() / std::max<std::int64_t>(1, x.dim(1)));
  check_user(x.type().elements() == 0 || values > 1, layer(name), "the input is ", to_string(x.type()),
             ": one value per channel has no variance to train on");
  const std::vector<Var> normed = impl_.builder.apply_many(
      table::kBatchNorm, {x, scale, bias}, {{"epsilon", options.eps}, {"shards", batch.shards}, {"lock_step", batch.lock_step}});
  if (!tracks) return normed[0];
  const double count = static_cast<double>(values);
  const auto blend = [&](ir::Value* running, Var batch) {
    impl_.builder.update(running, impl_.builder.wrap(running) * (1 - options.momentum) + batch * options.momentum);
  };
  blend(mean, normed[1]);
  blend(variance, normed[2] * (count / (count - 1)));  // PyTorch keeps the unbiased variance
  return normed[0];
}

Var Layers::layer_norm(const std::string& name, Var x, LayerNormOptions options) {
  impl_.builder.set_origin(name);
  const std::int64_t axis = first_of_last(name, x, options.axes);
  const Shape row(x.shape().begin() + axis, x.shape().end());
  const TensorType type{x.dtype(), row};
  const bool affine = options.elementwise_affine;
  Var scale = affine ? parameter(name + ".weight", row, {1}) : impl_.builder.full(type, 1);
  Var bias = affine && options.bias ? parameter(name + ".bias", row, {0}) : impl_.builder.full(type, 0);
  return impl_.builder.apply(table::kLayerNorm, {x, scale, bias}, {{"axis", axis}, {"epsilon", options.eps}});
}

Var Layers::rms_norm(const std::string& name, Var x, RmsNormOptions options) {
  impl_.builder.set_origin(name);
  const std::int64_t axis = first_of_last(name, x, options.axes);
  Var y = frontend::formulas::rms_normalized(x, axis, options.eps.value_or(machine_epsilon(x.dtype())));
  if (!options.elementwise_affine) return y;
  const Shape row(x.shape().begin() + axis, x.shape().end());
  return y * impl_.builder.broadcast(parameter(name + ".weight", row, {1}), y.shape());
}

Var Layers::group_norm(const std::string& name, Var x, std::int64_t groups, GroupNormOptions options) {
  impl_.builder.set_origin(name);
  require_channels(name, x, 2);
  check_user(groups > 0 && x.dim(1) % groups == 0, layer(name), groups, " groups, which do not divide ", x.dim(1), " channels");
  Var y = impl_.builder.reshape(frontend::formulas::group_normalized(x, groups, options.eps), x.shape());
  if (!options.affine) return y;
  const Shape channel{x.dim(1)};
  Var scale = parameter(name + ".weight", channel, {1}), bias = parameter(name + ".bias", channel, {0});
  return y * per_channel(scale, y.shape()) + per_channel(bias, y.shape());
}

Var Layers::instance_norm(const std::string& name, Var x, InstanceNormOptions options) {
  require_channels(name, x, 3);
  return group_norm(name, x, x.dim(1), {.eps = options.eps, .affine = options.affine});
}

}  // namespace gcomp
