// Losses of one class among several. PyTorch's formulas (torch.nn.functional).
#include "passes/training/losses/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kIgnored = -100;

constexpr OptionDef class_weight_option() { return OptionDef::weights("weight").says("of each class, or of each row by an array"); }

constexpr OptionDef kCrossEntropyOptions[] = {
    class_weight_option(),
    ignore_index_option(),
    reduction_option(),
    OptionDef::number("label_smoothing", "0").at_least(0).at_most(1).says("how much of each target is spread over all classes"),
    class_axis_option(),
};
constexpr OptionDef kNllOptions[] = {class_weight_option(), ignore_index_option(), reduction_option(), class_axis_option()};

/// Class numbers, or probabilities in the input's shape.
void class_or_probability_types(LossTypes& types) {
  const TensorType *x = types.known(0), *given = types.known(1);
  const std::optional<TensorType> found = types.found(1);
  const TensorType* target = given ? given : found ? &*found : nullptr;
  if (x && target && is_float(target->dtype) && target->shape == x->shape) return types.want(1, *x);
  class_number_types(types);
}

/// Whether there is a weight for each class; else for each row, or none.
bool by_class(const LossCall& c) { return c.o.has("weight") && !c.o.is_name("weight"); }

/// What each label says, in the labels' shape but for `hot`, which has the input's.
struct Labels {
  Var hot;     ///< bools, true at the label
  Var kept;    ///< 0 for one that is ignored, else 1
  Var weight;  ///< of its class or row; 0 for one that is ignored
};
Labels labels_of(const LossCall& c, std::int64_t axis) {
  Var x = c.x(), t = c.t();
  Var hot = c.b.iota({t.dtype(), x.shape()}, axis) == c.b.broadcast(t, x.shape(), all_but(x.rank(), axis));
  Var one = c.b.full({x.dtype(), t.shape()}, 1), zero = c.b.like(one, 0);
  Var ignored = t == c.b.like(t, static_cast<double>(c.o.integer("ignore_index")));
  Var weight = one;
  if (by_class(c)) weight = c.b.sum(ops::choose(hot, c.along("weight", x, axis), 0), {axis});
  else if (c.o.has("weight")) weight = c.along("weight", one, 0);
  return {hot, ops::choose(ignored, zero, one), ops::choose(ignored, zero, weight)};
}

LossSum nll_of(const LossCall& c, Var log_probabilities, std::int64_t axis, double smoothing) {
  const Labels labels = labels_of(c, axis);
  Var picked = -c.b.sum(ops::choose(labels.hot, log_probabilities, 0), {axis}) * labels.weight;
  if (smoothing == 0) return {picked, labels.weight};
  Var spread = by_class(c) ? -c.b.sum(log_probabilities * c.along("weight", log_probabilities, axis), {axis}) * labels.kept
                           : -c.b.sum(log_probabilities, {axis}) * labels.weight;
  return {picked * (1 - smoothing) + spread * (smoothing / static_cast<double>(c.x().dim(axis))), labels.weight};
}

LossSum cross_entropy(const LossCall& c) {
  const std::int64_t axis = settled_axis(c);
  const double smoothing = c.o.number("label_smoothing");
  Var logs = c.b.apply(ops::kLogSoftmax, {c.x()}, {{"axis", axis}}), t = c.t();
  if (t.rank() < c.x().rank()) return nll_of(c, logs, axis, smoothing);
  if (smoothing > 0) t = t * (1 - smoothing) + smoothing / static_cast<double>(c.x().dim(axis));
  if (by_class(c)) return {-c.b.sum(logs * t * c.along("weight", logs, axis), {axis})};
  Var rows = -c.b.sum(logs * t, {axis});
  if (!c.o.has("weight")) return {rows};
  Var weight = c.along("weight", rows, 0);
  return {rows * weight, weight};
}

/// In its plain form it is an op, whose gradient is written by hand.
Var mean_cross_entropy(const LossCall& c) {
  const bool is_plain =
      c.t().rank() < c.x().rank() && !c.o.has("weight") && c.o.number("label_smoothing") == 0 && c.o.word("reduction") == "mean";
  if (!is_plain) return {};
  Attributes attributes{{"axis", settled_axis(c)}};
  if (c.o.integer("ignore_index") != kIgnored) attributes.set("ignore_index", c.o.integer("ignore_index"));
  return c.b.apply(ops::kCrossEntropy, {c.x(), c.t()}, attributes);
}

LossSum nll(const LossCall& c) { return nll_of(c, c.x(), settled_axis(c), 0); }

constexpr OptionDef kMultiMarginOptions[] = {
    OptionDef::integer("p", "1").at_least(1).at_most(2).says("the power of what is too near"),
    margin_option("1"),
    OptionDef::weights("weight").says("of each class, or of each row by an array"),
    reduction_option(),
};

void matrix_types(LossTypes& types, std::int64_t rank_of_targets, std::optional<std::int64_t> ignored) {
  types.require(types.known(0) != nullptr, "the first argument is an output of the model");
  const TensorType x = *types.known(0);
  types.require(x.rank() == 2, "the input is ", to_string(x), ", wanted [rows, classes]");
  types.want(1, {DType::i64, rank_of_targets == 1 ? Shape{x.shape[0]} : x.shape});
  types.want_classes(1, x.shape[1], ignored);
}

LossSum multi_margin(const LossCall& c) {
  Var x = c.x(), t = c.t();
  Var hot = c.b.iota({t.dtype(), x.shape()}, 1) == c.b.broadcast(t, x.shape(), {0});
  Var right = c.b.sum(ops::choose(hot, x, 0), {1});
  Var near = ops::kRelu(x - c.b.broadcast(right, x.shape(), {0}) + c.o.number("margin"));
  if (c.o.integer("p") == 2) near = near * near;
  if (by_class(c)) {
    Var weight = c.b.sum(ops::choose(hot, c.along("weight", x, 1), 0), {1});
    near = near * c.b.broadcast(weight, x.shape(), {0});
  }
  Var rows = c.b.mean(ops::choose(hot, c.b.like(x, 0), near), {1});
  if (c.o.has("weight") && !by_class(c)) rows = rows * c.along("weight", rows, 0);
  return {rows};
}

constexpr OptionDef kMultilabelMarginOptions[] = {reduction_option()};

/// Each row lists its classes, up to the first -1.
LossSum multilabel_margin(const LossCall& c) {
  Var x = c.x(), t = c.t();
  const std::int64_t rows = x.dim(0), classes = x.dim(1);
  const Shape pairs{rows, classes, classes};  // row, place in the list or right class, class
  Var one = c.b.like(x, 1), none = c.b.like(x, 0);
  Var ended = c.b.apply(ops::kCumulativeSum, {ops::choose(t < c.b.like(t, 0), one, none)}, {{"axis", std::int64_t{1}}});
  Var listed = ops::choose(ended == none, one, none);
  Var same = c.b.broadcast(t, pairs, {0, 1}) == c.b.iota({t.dtype(), pairs}, 2);
  Var named = ops::choose(same, c.b.broadcast(listed, pairs, {0, 1}), 0);
  Var right = c.b.sum(ops::choose(same, c.b.broadcast(x, pairs, {0, 2}), 0), {2});
  Var wrong = 1.0 - c.b.max(named, {1});
  Var near = ops::kRelu(1.0 - c.b.broadcast(right, pairs, {0, 1}) + c.b.broadcast(x, pairs, {0, 2}));
  Var counted = near * c.b.broadcast(listed, pairs, {0, 1}) * c.b.broadcast(wrong, pairs, {0, 2});
  return {c.b.sum(counted, {1, 2}) / static_cast<double>(classes)};
}

}  // namespace

constexpr LossRule kCrossEntropy{
    .definition = {"cross_entropy", "-log softmax(input)[target], or for probabilities the mean of it by them",
                   kCrossEntropyOptions, "input, target"},
    .types = class_or_probability_types,
    .sum = cross_entropy,
    .mean = mean_cross_entropy,
    .of_classes = true,
};
constexpr LossRule kNll{
    .definition = {"nll", "-input[target], the input being a logarithm", kNllOptions, "input, target"},
    .types = class_number_types,
    .sum = nll,
    .of_classes = true,
};
constexpr LossRule kMultiMargin{
    .definition = {"multi_margin", "mean over the other classes of margin - input[target] + input[class] where that is above 0",
                   kMultiMarginOptions, "input, target"},
    .types = [](LossTypes& types) { matrix_types(types, 1, std::nullopt); },
    .sum = multi_margin,
    .of_classes = true,
};
constexpr LossRule kMultilabelMargin{
    .definition = {"multilabel_margin",
                   "multi_margin of several right classes, which each row of the target lists, up to the first -1",
                   kMultilabelMarginOptions, "input, target"},
    .types = [](LossTypes& types) { matrix_types(types, 2, -1); },
    .sum = multilabel_margin,
};

}  // namespace gcomp::passes
