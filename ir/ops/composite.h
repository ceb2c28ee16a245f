// Composites: defined by expansion into simpler ops, with a gradient of their own where the derived one is poor.
#pragma once

#include "ir/ops/lock_step.h"
#include "ir/ops/pointwise.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kAxisAttributes[] = {AttributeSpec::of("axis", AttributeType::integer)};
inline constexpr AttributeSpec kBatchNormAttributes[] = {AttributeSpec::optional("epsilon", AttributeType::real, 1e-5),
                                                         AttributeSpec::optional("shards", AttributeType::integer, 1),
                                                         AttributeSpec::optional("lock_step", AttributeType::integer, 1)};
inline constexpr AttributeSpec kLayerNormAttributes[] = {AttributeSpec::of("axis", AttributeType::integer),
                                                         AttributeSpec::optional("epsilon", AttributeType::real, 1e-5)};
inline constexpr AttributeSpec kCrossEntropyAttributes[] = {AttributeSpec::of("axis", AttributeType::integer),
                                                            AttributeSpec::optional("ignore_index", AttributeType::integer, -100),
                                                            AttributeSpec::optional("sum", AttributeType::flag)};
inline constexpr Sample kAxisSamples[] = {{"f64[3,4]", "{axis=1}"}, {"f64[3,4,2]", "{axis=1}"}, {"f64[5]", "{axis=0}"}};
inline constexpr Sample kBatchNormSamples[] = {{"f64[4,3] f64[3] f64[3]"}, {"f64[2,3,2,2] f64[3] f64[3]", "{epsilon=0.01}"}};
inline constexpr Sample kLayerNormSamples[] = {{"f64[3,4] f64[4] f64[4]", "{axis=1}"},
                                               {"f64[2,3,4] f64[3,4] f64[3,4]", "{axis=1, epsilon=0.01}"}};
inline constexpr Sample kCrossEntropySamples[] = {{"f64[4,3] i64[4]", "{axis=1}", 0, 2},
                                                  {"f64[2,3,2] i64[2,2]", "{axis=1}", 0, 2},
                                                  {"f64[4,3] i64[4]", "{axis=1, ignore_index=1, sum=true}", 0, 2}};
inline constexpr Sample kGradientBarrierSamples[] = {{"f64[2,3]"}, {"f64[]"}};
inline constexpr Sample kBceSamples[] = {{"f64[4,2] f64[4,2]", "", 0.1, 0.9}};

inline std::vector<TensorType> infer_along_axis(const InferContext& c) {
  const std::int64_t axis = c.attributes.integer("axis");
  c.require(axis >= 0 && axis < c.operand(0).rank() && is_float(c.operand(0).dtype), "axis ", axis, " of ", shown(c.operand(0)));
  return {c.operand(0)};
}
/// x less its maximum along the axis; the maximum counts as a constant.
inline Var shifted(Builder& b, Var x, std::int64_t axis) { return x - b.unreduce(b.max(x, {axis}), x.shape(), {axis}); }

constexpr OpDef kSoftmax{
    .name = "softmax",
    .summary = "exp(x - max) / sum of the same, along one axis",
    .kind = Kind::composite,
    .operands = 1,
    .attributes = kAxisAttributes,
    .precision = Precision::wide,
    .infer = infer_along_axis,
    .boxed = boxed_along_axis,
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::int64_t axis = e.attributes().integer("axis");
          Var weight = kExp(shifted(b, e.operand(0), axis));
          return std::vector{(weight / b.unreduce(b.sum(weight, {axis}), weight.shape(), {axis})).value};
        },
    .gradient =
        [](GradientContext& g) {
          const std::int64_t axis = g.attributes().integer("axis");
          Var y = g.result(), dy = g.dy();
          g.add(0, y * (dy - g.builder().unreduce(g.builder().sum(dy * y, {axis}), y.shape(), {axis})));
        },
    .samples = kAxisSamples,
};

constexpr OpDef kLogSoftmax{
    .name = "log_softmax",
    .summary = "x - max - log(sum(exp(x - max))), along one axis",
    .kind = Kind::composite,
    .operands = 1,
    .attributes = kAxisAttributes,
    .precision = Precision::wide,
    .infer = infer_along_axis,
    .boxed = boxed_along_axis,
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::int64_t axis = e.attributes().integer("axis");
          Var x = shifted(b, e.operand(0), axis);
          return std::vector{(x - b.unreduce(kLog(b.sum(kExp(x), {axis})), x.shape(), {axis})).value};
        },
    .gradient =
        [](GradientContext& g) {
          const std::int64_t axis = g.attributes().integer("axis");
          Var dy = g.dy();
          g.add(0, dy - kExp(g.result()) * g.builder().unreduce(g.builder().sum(dy, {axis}), dy.shape(), {axis}));
        },
    .samples = kAxisSamples,
};

/// Mean and 1 / sqrt(variance + epsilon) over axes, the variance in two passes.
struct Moments {
  Var mean, variance, rstd, centered, normalized;
};
inline Moments moments_of(Builder& b, Var x, const Integers& axes, double epsilon) {
  Var mean = b.mean(x, axes);
  Var centered = x - b.unreduce(mean, x.shape(), axes);
  Var variance = b.mean(centered * centered, axes);
  Var rstd = kRsqrt(variance + epsilon);
  return {mean, variance, rstd, centered, centered * b.unreduce(rstd, x.shape(), axes)};
}
inline Integers all_but_channel(std::int64_t rank) {
  Integers axes{0};
  for (std::int64_t i = 2; i < rank; ++i) axes.push_back(i);
  return axes;
}
/// The middle position of a row: of each channel one value.
inline Var middle_of(Builder& b, Var x, std::int64_t row) {
  Var middle = b.slice_axis(x, 0, row, 1);
  for (std::int64_t i = 2; i < x.rank(); ++i) middle = b.slice_axis(middle, i, x.dim(i) / 2, 1);
  return b.reshape(middle, {x.dim(1)});
}
/// The same over the batch and its positions, read once: sums of x - s and of its square. Over the values of a channel the mean of
/// (s - mean)^2 is the variance: so in mean((x - s)^2) - mean(x - s)^2 next to nothing cancels, unless s lies tens of deviations
/// from all others. Of the middle values of three rows s is the median, which no single outlier is.
inline Moments batch_moments_of(Builder& b, Var x, double epsilon) {
  const Integers axes = all_but_channel(x.rank());
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;
  if (element_count(x.shape()) < kLarge) return moments_of(b, x, axes, epsilon);
  Var first = middle_of(b, x, 0), half = middle_of(b, x, x.dim(0) / 2), last = middle_of(b, x, x.dim(0) - 1);
  Var shift = kMaximum(kMinimum(first, half), kMinimum(kMaximum(first, half), last));
  Var apart = x - b.unreduce(shift, x.shape(), axes);
  Var mean_apart = b.mean(apart, axes), mean_square = b.mean(apart * apart, axes);
  Var mean = shift + mean_apart;
  Var zero = b.full(shift.type(), 0);
  Var variance = kMaximum(mean_square - mean_apart * mean_apart, zero);
  Var rstd = kRsqrt(variance + epsilon), centered = x - b.unreduce(mean, x.shape(), axes);
  return {mean, variance, rstd, centered, centered * b.unreduce(rstd, x.shape(), axes)};
}
/// dx = rstd * (g - mean(g) - h * mean(g * h)) with h the normalized input and g the gradient before scaling.
inline Var norm_gradient(Builder& b, const Moments& m, Var scaled_dy, const Integers& axes) {
  const Shape& shape = scaled_dy.shape();
  Var mean_g = b.unreduce(b.mean(scaled_dy, axes), shape, axes);
  Var mean_gh = b.unreduce(b.mean(scaled_dy * m.normalized, axes), shape, axes);
  return b.unreduce(m.rstd, shape, axes) * (scaled_dy - mean_g - m.normalized * mean_gh);
}
// With `shards`, the batch is that of all shards, each of which has as many values a channel.

inline bool is_synchronized(const Attributes& attributes) { return attributes.integer("shards") > 1; }
inline Attributes synchronized_shards(const Attributes& attributes) {
  return shard_group(attributes.integer("shards"), attributes.integer("lock_step"));
}
/// One exchange, of the shards' means and variances: the variance of all is the mean of theirs plus the variance of their means.
/// Each is of squares of differences from a mean, so that nothing cancels.
inline Moments synchronized_moments(Builder& b, Var x, const Attributes& attributes) {
  const Integers axes = all_but_channel(x.rank());
  const std::int64_t channels = x.dim(1), shards = attributes.integer("shards");
  const double share = 1 / static_cast<double>(shards);
  Var own_mean = b.mean(x, axes), own_centered = x - b.unreduce(own_mean, x.shape(), axes);
  Var own_variance = b.mean(own_centered * own_centered, axes);
  Var all = b.apply(kShardGather, {b.concat({own_mean, own_variance}, 0)}, synchronized_shards(attributes));
  Var means = b.slice_axis(all, 1, 0, channels), variances = b.slice_axis(all, 1, channels, channels);
  Var mean = tree_sum_of_rows(b, means) * share;
  Var apart = means - b.broadcast(mean, means.shape(), {1});
  Var variance = (tree_sum_of_rows(b, variances) + tree_sum_of_rows(b, apart * apart)) * share;
  Var rstd = kRsqrt(variance + attributes.real("epsilon"));
  Var centered = x - b.unreduce(mean, x.shape(), axes);
  return {mean, variance, rstd, centered, centered * b.unreduce(rstd, x.shape(), axes)};
}
/// One exchange too: the sums that norm_gradient() takes means of, and what comes by way of the statistics. Gradients of scale and
/// bias are of this shard's rows, as those of all parameters.
inline void synchronized_gradient(GradientContext& g) {
  Builder& b = g.builder();
  Var x = g.operand(0), dy = g.dy();
  const Shape& shape = x.shape();
  const Integers axes = all_but_channel(x.rank());
  const std::int64_t channels = x.dim(1);
  Var centered = x - b.unreduce(g.result(1), shape, axes);
  Var rstd = kRsqrt(g.result(2) + g.attributes().real("epsilon"));
  Var normalized = centered * b.unreduce(rstd, shape, axes);
  std::vector<Var> sums{b.sum(dy, axes), b.sum(dy * normalized, axes)};
  if (g.wants(1)) g.add(1, sums[1]);
  if (g.wants(2)) g.add(2, sums[0]);
  if (!g.wants(0)) return;
  for (const std::size_t statistic : {1, 2})
    if (g.has_dy(statistic)) sums.push_back(g.dy(statistic));
  Var all = b.apply(kShardSum, {b.concat(sums, 0)}, synchronized_shards(g.attributes()));
  const double count = static_cast<double>(g.attributes().integer("shards") * (element_count(shape) / channels));
  std::int64_t next = 0;
  const auto mean_of_next = [&] {
    return b.unreduce(b.slice_axis(all, 0, channels * next++, channels) * (1 / count), shape, axes);
  };
  Var mean_dy = mean_of_next(), mean_dy_normalized = mean_of_next();
  g.add(0, b.broadcast(rstd * g.operand(1), shape, {1}) * (dy - mean_dy - normalized * mean_dy_normalized));
  if (g.has_dy(1)) g.add(0, mean_of_next());
  if (g.has_dy(2)) g.add(0, centered * mean_of_next() * 2.0);
}

constexpr OpDef kBatchNorm{
    .name = "batch_norm",
    .summary = "normalizes each channel (axis 1) by the batch's mean and population variance: y, mean, variance",
    .kind = Kind::composite,
    .operands = 3,
    .results = 3,
    .attributes = kBatchNormAttributes,
    .precision = Precision::rounded,
    .infer =
        [](const InferContext& c) {
          const TensorType& x = c.operand(0);
          const std::int64_t shards = c.attributes.integer("shards"), lock_step = c.attributes.integer("lock_step");
          c.require(shards >= 1 && lock_step >= 1 && shards % lock_step == 0, shards, " shards, ", lock_step,
                    " of them in lock step");
          c.require(x.rank() >= 2 && is_float(x.dtype), "input is ", shown(x), ", wanted [n, c, ...]");
          const TensorType channel{x.dtype, {x.shape[1]}};
          c.require(c.operand(1) == channel && c.operand(2) == channel, "scale is ", shown(c.operand(1)), ", bias ",
                    shown(c.operand(2)), ", wanted ", shown(channel));
          c.require(x.elements() == 0 || shards * (x.elements() / x.shape[1]) > 1,
                    "one value per channel has no variance to train on: input is ", shown(x));
          return std::vector{x, channel, channel};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          Var x = e.operand(0);
          const double epsilon = e.attributes().real("epsilon");
          const Moments m =
              is_synchronized(e.attributes()) ? synchronized_moments(b, x, e.attributes()) : batch_moments_of(b, x, epsilon);
          // rstd and scale meet once a channel: an operation and a rounding less for each element.
          Var y = m.centered * b.broadcast(m.rstd * e.operand(1), x.shape(), {1}) + b.broadcast(e.operand(2), x.shape(), {1});
          return std::vector{y.value, m.mean.value, m.variance.value};
        },
    .gradient =
        [](GradientContext& g) {
          if (is_synchronized(g.attributes())) return synchronized_gradient(g);
          Builder& b = g.builder();
          Var x = g.operand(0), dy = g.dy();
          const Integers axes = all_but_channel(x.rank());
          Moments m = batch_moments_of(b, x, g.attributes().real("epsilon"));
          if (g.wants(1)) g.add(1, b.sum(dy * m.normalized, axes));
          if (g.wants(2)) g.add(2, b.sum(dy, axes));
          if (!g.wants(0)) return;
          // The scale is one number a channel and goes in front of the means, which are then of the same two sums.
          m.rstd = m.rstd * g.operand(1);
          g.add(0, norm_gradient(b, m, dy, axes));
          const double count = static_cast<double>(element_count(x.shape()) / x.dim(1));
          if (g.has_dy(1)) g.add(0, b.unreduce(g.dy(1) / count, x.shape(), axes));
          if (g.has_dy(2)) g.add(0, (x - b.unreduce(m.mean, x.shape(), axes)) * b.unreduce(g.dy(2) * (2 / count), x.shape(), axes));
        },
    .samples = kBatchNormSamples,
};

constexpr OpDef kLayerNorm{
    .name = "layer_norm",
    .summary = "normalizes over the axes from `axis` on, then scales and shifts",
    .kind = Kind::composite,
    .operands = 3,
    .attributes = kLayerNormAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const TensorType& x = c.operand(0);
          const std::int64_t axis = c.attributes.integer("axis");
          c.require(axis >= 0 && axis <= x.rank() && is_float(x.dtype), "axis ", axis, " of ", shown(x));
          const TensorType row{x.dtype, Shape(x.shape.begin() + axis, x.shape.end())};
          c.require(c.operand(1) == row && c.operand(2) == row, "scale is ", shown(c.operand(1)), ", bias ", shown(c.operand(2)),
                    ", wanted ", shown(row));
          return std::vector{x};
        },
    .boxed =
        [](const BoxContext& c) {
          const std::size_t axis = at(c.attributes.integer("axis"));
          return boxed_besides(c, axis, c.box.size() - axis);
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          Var x = e.operand(0);
          const Integers axes = [&] {
            Integers a;
            for (std::int64_t i = e.attributes().integer("axis"); i < x.rank(); ++i) a.push_back(i);
            return a;
          }();
          const Moments m = moments_of(b, x, axes, e.attributes().real("epsilon"));
          return std::vector{
              (m.normalized * b.broadcast(e.operand(1), x.shape(), axes) + b.broadcast(e.operand(2), x.shape(), axes)).value};
        },
    .gradient =
        [](GradientContext& g) {
          Builder& b = g.builder();
          Var x = g.operand(0), dy = g.dy();
          Integers axes, rows;
          for (std::int64_t i = 0; i < x.rank(); ++i) (i < g.attributes().integer("axis") ? rows : axes).push_back(i);
          const Moments m = moments_of(b, x, axes, g.attributes().real("epsilon"));
          if (g.wants(1)) g.add(1, b.sum(dy * m.normalized, rows));
          if (g.wants(2)) g.add(2, b.sum(dy, rows));
          if (g.wants(0)) g.add(0, norm_gradient(b, m, dy * b.broadcast(g.operand(1), x.shape(), axes), axes));
        },
    .samples = kLayerNormSamples,
};

inline Integers all_but(std::int64_t rank, std::int64_t axis) {
  Integers axes;
  for (std::int64_t i = 0; i < rank; ++i)
    if (i != axis) axes.push_back(i);
  return axes;
}
/// True at the labelled class, in the logits' shape.
inline Var labelled(Builder& b, Var logits, Var labels, std::int64_t axis) {
  return b.iota({labels.dtype(), logits.shape()}, axis) == b.broadcast(labels, logits.shape(), all_but(logits.rank(), axis));
}

constexpr OpDef kCrossEntropy{
    .name = "cross_entropy",
    .summary =
        "mean over rows, or with `sum` the sum, of -log softmax(logits)[label] along `axis`, but of rows labelled ignore_index",
    .kind = Kind::composite,
    .operands = 2,
    .attributes = kCrossEntropyAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          infer_along_axis(c);
          Shape rows = c.operand(0).shape;
          rows.erase(rows.begin() + c.attributes.integer("axis"));
          c.require(is_signed_integer(c.operand(1).dtype) && c.operand(1).shape == rows, "labels are ", shown(c.operand(1)),
                    ", wanted signed integers of shape [", shown(rows), "]");
          return std::vector{TensorType{c.operand(0).dtype, {}}};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::int64_t axis = e.attributes().integer("axis");
          Var x = shifted(b, e.operand(0), axis), labels = e.operand(1);
          Var kept = kept_rows(b, labels, e.attributes().integer("ignore_index"), x.dtype());
          Var picked = b.sum(choose(labelled(b, x, labels, axis), x, 0), {axis});
          Var losses = (kLog(b.sum(kExp(x), {axis})) - picked) * kept;
          Integers rows;
          for (std::int64_t i = 0; i < losses.rank(); ++i) rows.push_back(i);
          Var sum = b.sum(losses, rows);
          return std::vector{(e.attributes().flag("sum") ? sum : sum / b.sum(kept, rows)).value};
        },
    .gradient =
        [](GradientContext& g) {
          Builder& b = g.builder();
          const std::int64_t axis = g.attributes().integer("axis");
          Var logits = g.operand(0), labels = g.operand(1), weight = kExp(shifted(b, logits, axis));
          Var kept = kept_rows(b, labels, g.attributes().integer("ignore_index"), logits.dtype());
          Integers rows;
          for (std::int64_t i = 0; i < kept.rank(); ++i) rows.push_back(i);
          Var each = g.attributes().flag("sum") ? g.dy() : g.dy() / b.sum(kept, rows);
          Var scale = kept * b.broadcast(each, kept.shape(), {});
          Var probability = weight / b.unreduce(b.sum(weight, {axis}), weight.shape(), {axis});
          Var hot = choose(labelled(b, logits, labels, axis), b.like(logits, 1), 0);
          g.add(0, (probability - hot) * b.unreduce(scale, logits.shape(), {axis}));
        },
    .samples = kCrossEntropySamples,
};

constexpr OpDef kBinaryCrossEntropy{
    .name = "binary_cross_entropy",
    .summary = "-(t log p + (1 - t) log(1 - p)) with each logarithm at least -100, elementwise",
    .kind = Kind::composite,
    .operands = 2,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          c.require(c.operand(0) == c.operand(1) && is_float(c.operand(0).dtype), "probabilities are ", shown(c.operand(0)),
                    ", targets ", shown(c.operand(1)));
          return std::vector{c.operand(0)};
        },
    .expand =
        [](ExpandContext& e) {
          Var p = e.operand(0), t = e.operand(1), low = e.builder().like(p, -100);
          Var yes = kMaximum(kLog(p), low), no = kMaximum(kLog1p(-p), low);
          return std::vector{((t - 1.0) * no - t * yes).value};
        },
    .gradient =
        [](GradientContext& g) {
          Var p = g.operand(0), t = g.operand(1), floor = g.builder().like(p, 1e-12);
          if (g.wants(0)) g.add(0, g.dy() * (p - t) / kMaximum(p * (1.0 - p), floor));
          if (g.wants(1)) {
            Var low = g.builder().like(p, -100);
            g.add(1, g.dy() * (kMaximum(kLog1p(-p), low) - kMaximum(kLog(p), low)));
          }
        },
    .samples = kBceSamples,
};

/// Where gradients are added up one after the other: what comes from later readers of an operand is one sum, in memory, before
/// those of earlier ones are added, so that no kernel waits for all of them.
constexpr OpDef kGradientBarrier{
    .name = "gradient_barrier",
    .summary = "its operand; nothing is fused across it on the way back",
    .kind = Kind::composite,
    .operands = 1,
    .precision = Precision::wide,
    .infer = [](const InferContext& c) { return std::vector{c.operand(0)}; },
    .expand = [](ExpandContext& e) { return std::vector{e.operand(0).value}; },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kBarrier, {g.dy()})); },
    .samples = kGradientBarrierSamples,
};

inline constexpr const OpDef* kCompositeOps[] = {&kSoftmax,      &kLogSoftmax,         &kBatchNorm,      &kLayerNorm,
                                                 &kCrossEntropy, &kBinaryCrossEntropy, &kGradientBarrier};

}  // namespace gcomp::ir::ops
