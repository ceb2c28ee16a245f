// The area under the ROC curve, which needs all scores at once. scikit-learn's definition (roc_auc_score), of several classes one
// against the rest.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "passes/training/metrics/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

void score_types(LossTypes& types) {
  types.require(types.known(0) && is_float(types.known(0)->dtype), "the first argument is an output of floats of the model");
  const TensorType x = *types.known(0);
  const std::optional<TensorType> found = types.found(1);
  const TensorType* target = types.known(1) ? types.known(1) : found ? &*found : nullptr;
  if (!target || target->shape == x.shape) return types.want(1, x);
  types.require(x.rank() == 2, "the output is ", to_string(x), ", wanted [rows, classes], or targets like it");
  types.want(1, {DType::i64, {x.shape[0]}});
  types.want_classes(1, x.shape[1], -100);
}

/// Scores and what is right, each row beside the other: f64[rows, columns] twice. Of two classes the second's score is what counts.
std::vector<Var> rows_of(const MetricCall& c) {
  Var x = c.x(), t = c.t();
  const std::int64_t rows = x.dim(0), columns = rows == 0 ? 0 : x.type().elements() / rows;
  const Shape shape{rows, columns};
  if (t.rank() == x.rank()) return {c.b.reshape(c.b.cast(x, DType::f64), shape), c.b.reshape(c.b.cast(t, DType::f64), shape)};
  Var scores = c.b.cast(c.b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}}), DType::f64);
  Var hot = c.b.iota({DType::i64, shape}, 1) == c.b.broadcast(t, shape, {0});
  Var right = ops::choose(hot, c.b.like(scores, 1), 0);
  if (columns != 2) return {scores, right};
  return {c.b.slice_axis(scores, 1, 1, 1), c.b.slice_axis(right, 1, 1, 1)};
}

/// How often a yes has the larger score, of all pairs of a yes and a no; ties count one half. NaN where a score is, which has no
/// place among the others.
double area(const std::vector<std::pair<double, bool>>& unsorted) {
  if (std::ranges::any_of(unsorted, [](const auto& row) { return std::isnan(row.first); }))
    return std::numeric_limits<double>::quiet_NaN();
  std::vector<std::pair<double, bool>> all = unsorted;
  std::ranges::sort(all);
  double ranks = 0, yes = 0;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i;
    while (end < all.size() && all[end].first == all[i].first) ++end;
    const double rank = static_cast<double>(i + end + 1) / 2;  // of each of equals, from 1
    for (; i < end; ++i)
      if (all[i].second) ranks += rank, yes += 1;
  }
  const double no = static_cast<double>(all.size()) - yes;
  return (ranks - yes * (yes + 1) / 2) / (yes * no);
}

Tensor auc(const Options&, std::span<const Tensor> rows) {
  const Tensor &scores = rows[0], &right = rows[1];
  const std::int64_t count = scores.shape()[0], columns = scores.shape()[1];
  double total = 0;
  std::vector<std::pair<double, bool>> column(static_cast<std::size_t>(count));
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = 0; i < count; ++i)
      column[static_cast<std::size_t>(i)] = {scores.at(i * columns + j), right.at(i * columns + j) > 0.5};
    total += area(column);
  }
  return scalar_of(total / static_cast<double>(columns));
}

}  // namespace

constexpr MetricRule kAuc{
    .definition = {"auc", "area under the ROC curve, the mean over classes", {}, "input, target"},
    .types = score_types,
    .sums = rows_of,
    .value = auc,
    .keeps_rows = true,
    .higher_is_better = true,
};

}  // namespace gcomp::passes
