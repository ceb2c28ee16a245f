// Metrics of decisions, counted by class. scikit-learn's definitions (sklearn.metrics).
#include <algorithm>

#include "passes/training/metrics/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kMostConfused = 4096;  // classes of a confusion matrix

constexpr OptionDef threshold_option() {
  return OptionDef::number("threshold", "none")
      .or_none()
      .says("above it an input that is no class is a yes (default 0.5, 0 for the scores of a loss)");
}
constexpr OptionDef average_option() {
  return OptionDef::word("average", "none", "binary|macro|micro|weighted")
      .or_none()
      .says("over the classes that occur (default: binary, which is of class 1 alone, where there are two, else macro)");
}

constexpr OptionDef kDecisionOptions[] = {threshold_option(), ignore_index_option(), class_axis_option()};
constexpr OptionDef kAveragedOptions[] = {average_option(), threshold_option(), ignore_index_option(), class_axis_option()};

/// Class numbers, or yes and no for each element.
void decision_types(LossTypes& types) {
  const std::optional<TensorType> found = types.found(1);
  const TensorType* target = types.known(1) ? types.known(1) : found ? &*found : nullptr;
  if (types.known(0) && target && target->shape == types.known(0)->shape) return types.want(1, TensorType(*types.known(0)));
  class_number_types(types);
}

bool has_classes(const LossCall& c) { return c.t().rank() < c.x().rank(); }

Var as_f64(Var truth) { return ops::choose(truth, truth.builder->full({DType::f64, truth.shape()}, 1), 0); }

/// What is decided and what is right, as class numbers along an axis that both lack, or as yes (1) and no (0).
struct Decisions {
  Var decided, right;  ///< i64
  Var kept;            ///< f64, 0 where nothing counts
  std::int64_t classes = 2, axis = -1;
};

Decisions decisions_of(const MetricCall& c) {
  Var x = c.x(), t = c.t();
  Decisions d;
  if (has_classes(c) || c.of_classes) {
    d.axis = settled_axis(c);
    d.classes = x.dim(d.axis);
    d.decided = c.b.reduce(ops::kArgMax, x, {d.axis});
    d.right = has_classes(c) ? t : c.b.reduce(ops::kArgMax, t, {d.axis});
    Var one = c.b.full({DType::f64, d.right.shape()}, 1);
    d.kept = has_classes(c) ? ops::choose(t == c.b.like(t, static_cast<double>(c.o.integer("ignore_index"))), c.b.like(one, 0), one)
                            : one;
  } else {
    const double threshold = c.o.has("threshold") ? c.o.number("threshold") : c.takes_scores ? 0.0 : 0.5;
    d.decided = c.b.cast(x > c.b.like(x, threshold), DType::i64);
    d.right = c.b.cast(t > c.b.like(t, 0.5), DType::i64);
    d.kept = c.b.full({DType::f64, x.shape()}, 1);
  }
  d.kept = c.counted.only(d.kept);
  return d;
}

/// Of numbers below `classes`, how many there are of each: f64[classes].
Var counts_of(const MetricCall& c, const Decisions& d, Var numbers, Var weights) {
  Shape shape = numbers.shape();
  shape.push_back(d.classes);
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < numbers.rank(); ++i) axes.push_back(i);
  Var hot = c.b.broadcast(numbers, shape, axes) == c.b.iota({DType::i64, shape}, numbers.rank());
  return c.b.sum(ops::choose(hot, c.b.broadcast(weights, shape, axes), 0), axes);
}

std::vector<Var> right_and_all(const MetricCall& c) {
  const Decisions d = decisions_of(c);
  return {sum_of_all(as_f64(d.decided == d.right) * d.kept), sum_of_all(d.kept)};
}

Tensor share(const Options&, std::span<const Tensor> sums) { return scalar_of(sums[0].at(0) / sums[1].at(0)); }

constexpr OptionDef kTopKOptions[] = {
    OptionDef::integer("k", "5").at_least(1).says("how many guesses there are"),
    ignore_index_option(),
    class_axis_option(),
};

/// As many guesses are better than the right one as have a larger score, or the same and a smaller number.
std::vector<Var> top_k(const MetricCall& c) {
  Var x = c.x(), t = c.t();
  const std::int64_t axis = settled_axis(c);
  const auto spread = [&](Var v) { return c.b.broadcast(v, x.shape(), all_but(x.rank(), axis)); };
  Var numbers = c.b.iota({DType::i64, x.shape()}, axis);
  Var score = c.b.sum(ops::choose(numbers == spread(t), x, 0), {axis});
  Var better = as_f64(x > spread(score)) + as_f64(ops::kAnd(x == spread(score), numbers < spread(t)));
  Var one = c.b.full({DType::f64, t.shape()}, 1), zero = c.b.like(one, 0);
  Var kept = c.counted.only(ops::choose(t == c.b.like(t, static_cast<double>(c.o.integer("ignore_index"))), zero, one));
  Var rank = c.b.sum(better, {axis});
  return {sum_of_all(as_f64(rank < c.b.like(rank, static_cast<double>(c.o.integer("k")))) * kept), sum_of_all(kept)};
}

/// For each class: how often it was right to decide for it, it was decided for, it was the right one.
std::vector<Var> by_class(const MetricCall& c) {
  const Decisions d = decisions_of(c);
  return {counts_of(c, d, d.decided, as_f64(d.decided == d.right) * d.kept), counts_of(c, d, d.decided, d.kept),
          counts_of(c, d, d.right, d.kept)};
}

/// The ratio of two linear functions of those three counts, averaged over classes.
using Ratio = double (*)(double hits, double decided, double right);
double ratio_or_zero(double a, double b) { return b == 0 ? 0 : a / b; }

Tensor averaged(const Options& options, std::span<const Tensor> sums, Ratio ratio) {
  const std::int64_t classes = sums[0].elements();
  const std::string average = options.has("average") ? options.word("average") : classes == 2 ? "binary" : "macro";
  double total = 0, weight = 0, hits = 0, decided = 0, right = 0;
  if (average == "binary") return scalar_of(ratio(sums[0].at(1), sums[1].at(1), sums[2].at(1)));
  for (std::int64_t i = 0; i < classes; ++i) {
    const double h = sums[0].at(i), d = sums[1].at(i), r = sums[2].at(i);
    hits += h, decided += d, right += r;
    if (d == 0 && r == 0) continue;
    const double w = average == "weighted" ? r : 1;
    total += w * ratio(h, d, r);
    weight += w;
  }
  return scalar_of(average == "micro" ? ratio(hits, decided, right) : ratio_or_zero(total, weight));
}

std::vector<Var> confusion(const MetricCall& c) {
  const Decisions d = decisions_of(c);
  if (d.classes > kMostConfused)
    throw UserError(concat("confusion: the output has ", d.classes, " classes, wanted at most ", kMostConfused));
  const std::int64_t n = d.kept.type().elements();
  const auto flat = [&](Var v) { return c.b.reshape(v, {n}); };
  const Shape shape{n, d.classes};
  const auto hot = [&](Var numbers) {
    return as_f64(c.b.broadcast(flat(numbers), shape, {0}) == c.b.iota({DType::i64, shape}, 1));
  };
  return {c.b.matmul(hot(d.right) * c.b.broadcast(flat(d.kept), shape, {0}), hot(d.decided), true)};
}

}  // namespace

constexpr MetricRule kAccuracy{
    .definition = {"accuracy", "share of right decisions", kDecisionOptions, "input, target"},
    .types = decision_types,
    .sums = right_and_all,
    .value = share,
    .higher_is_better = true,
};
constexpr MetricRule kTopK{
    .definition = {"top_k", "share of labels that are among the k classes of the largest scores", kTopKOptions, "input, target"},
    .types = class_number_types,
    .sums = top_k,
    .value = share,
    .higher_is_better = true,
};
constexpr MetricRule kPrecision{
    .definition = {"precision", "of what is decided for, how much is right", kAveragedOptions, "input, target"},
    .types = decision_types,
    .sums = by_class,
    .value =
        [](const Options& o, std::span<const Tensor> s) {
          return averaged(o, s, [](double h, double d, double) { return ratio_or_zero(h, d); });
        },
    .outputs = 3,
    .higher_is_better = true,
};
constexpr MetricRule kRecall{
    .definition = {"recall", "of what is right, how much is decided for", kAveragedOptions, "input, target"},
    .types = decision_types,
    .sums = by_class,
    .value =
        [](const Options& o, std::span<const Tensor> s) {
          return averaged(o, s, [](double h, double, double r) { return ratio_or_zero(h, r); });
        },
    .outputs = 3,
    .higher_is_better = true,
};
constexpr MetricRule kF1{
    .definition = {"f1", "harmonic mean of precision and recall", kAveragedOptions, "input, target"},
    .types = decision_types,
    .sums = by_class,
    .value =
        [](const Options& o, std::span<const Tensor> s) {
          return averaged(o, s, [](double h, double d, double r) { return ratio_or_zero(2 * h, d + r); });
        },
    .outputs = 3,
    .higher_is_better = true,
};
constexpr MetricRule kIou{
    .definition = {"iou", "what is decided for and right over what is either (Jaccard's index)", kAveragedOptions, "input, target"},
    .types = decision_types,
    .sums = by_class,
    .value =
        [](const Options& o, std::span<const Tensor> s) {
          return averaged(o, s, [](double h, double d, double r) { return ratio_or_zero(h, d + r - h); });
        },
    .outputs = 3,
    .higher_is_better = true,
};
constexpr MetricRule kDiceScore{
    .definition = {"dice", "twice what is decided for and right over the sum of both, which is f1", kAveragedOptions,
                   "input, target"},
    .types = decision_types,
    .sums = kF1.sums,
    .value = kF1.value,
    .outputs = 3,
    .higher_is_better = true,
};
constexpr MetricRule kConfusion{
    .definition = {"confusion", "how often each class (row) was taken for each (column)", kDecisionOptions, "input, target"},
    .types = decision_types,
    .sums = confusion,
    .value = [](const Options&, std::span<const Tensor> s) { return s[0]; },
    .outputs = 1,
};

}  // namespace gcomp::passes
