// Metrics of numbers against numbers, by scikit-learn's definitions, and perplexity.
#include <cmath>

#include "passes/training/metrics/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

Var ones(Var x) { return x.builder->full({DType::f64, x.shape()}, 1); }
Var difference(const MetricCall& c) { return c.b.cast(c.x(), DType::f64) - c.b.cast(c.t(), DType::f64); }
std::vector<Var> sum_and_count(const MetricCall& c, Var values) {
  return {sum_of_all(c.counted.only(values)), sum_of_all(c.counted.only(ones(values)))};
}

std::vector<Var> absolute_errors(const MetricCall& c) { return sum_and_count(c, ops::kAbs(difference(c))); }
std::vector<Var> squared_errors(const MetricCall& c) {
  Var d = difference(c);
  return sum_and_count(c, d * d);
}

/// Of each column of the last axis: the rows, sums of targets and their squares, and of squared errors.
std::vector<Var> sums_by_column(const MetricCall& c) {
  Var d = difference(c), t = c.b.cast(c.t(), DType::f64);
  std::vector<std::int64_t> axes{0};
  for (std::int64_t i = 1; i + 1 < t.rank(); ++i) axes.push_back(i);
  const auto sum = [&](Var x) { return c.b.sum(c.counted.only(x), axes); };
  return {sum(ones(t)), sum(t), sum(t * t), sum(d * d)};
}

/// The mean over columns of 1 - squared errors / squares around the mean; of a column without spread 1 where it is met, else 0.
Tensor r2(const Options&, std::span<const Tensor> sums) {
  double total = 0;
  const std::int64_t columns = sums[0].elements();
  for (std::int64_t i = 0; i < columns; ++i) {
    const double n = sums[0].at(i), mean = sums[1].at(i) / n, spread = sums[2].at(i) - n * mean * mean, errors = sums[3].at(i);
    total += spread > 0 ? 1 - errors / spread : errors == 0 ? 1 : 0;
  }
  return scalar_of(total / static_cast<double>(columns));
}

void vector_types(LossTypes& types) {
  same_types(types);
  types.require(types.known(0)->rank() >= 1, "the input is ", to_string(*types.known(0)), ", wanted rows");
}

constexpr OptionDef kPerplexityOptions[] = {
    ignore_index_option(),
    class_axis_option(),
};

std::vector<Var> surprise(const MetricCall& c) {
  const std::int64_t axis = settled_axis(c);
  Var x = c.x(), t = c.t(), logs = c.b.apply(ops::kLogSoftmax, {x}, {{"axis", axis}});
  Var hot = c.b.iota({DType::i64, x.shape()}, axis) == c.b.broadcast(t, x.shape(), all_but(x.rank(), axis));
  Var picked = c.b.cast(-c.b.sum(ops::choose(hot, logs, 0), {axis}), DType::f64), one = ones(picked);
  Var kept = ops::choose(t == c.b.like(t, static_cast<double>(c.o.integer("ignore_index"))), c.b.like(one, 0), one);
  return {sum_of_all(c.counted.only(picked * kept)), sum_of_all(c.counted.only(kept))};
}

Tensor mean(const Options&, std::span<const Tensor> sums) { return scalar_of(sums[0].at(0) / sums[1].at(0)); }

}  // namespace

constexpr MetricRule kPerplexity{
    .definition = {"perplexity", "exp of the mean of -log softmax(input)[target]", kPerplexityOptions, "input, target"},
    .types = class_number_types,
    .sums = surprise,
    .value = [](const Options& o, std::span<const Tensor> sums) { return scalar_of(std::exp(mean(o, sums).at(0))); },
    .higher_is_better = false,
};
constexpr MetricRule kMae{
    .definition = {"mae", "mean of |input - target|", {}, "input, target"},
    .types = same_types,
    .sums = absolute_errors,
    .value = mean,
    .higher_is_better = false,
};
constexpr MetricRule kRmse{
    .definition = {"rmse", "root of the mean of (input - target)^2", {}, "input, target"},
    .types = same_types,
    .sums = squared_errors,
    .value = [](const Options& o, std::span<const Tensor> sums) { return scalar_of(std::sqrt(mean(o, sums).at(0))); },
    .higher_is_better = false,
};
constexpr MetricRule kR2{
    .definition = {"r2", "share of the targets' variance that is explained, the mean over columns", {}, "input, target"},
    .types = vector_types,
    .sums = sums_by_column,
    .value = r2,
    .outputs = 4,
    .higher_is_better = true,
};

}  // namespace gcomp::passes
