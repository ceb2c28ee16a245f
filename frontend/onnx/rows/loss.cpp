// Losses as ONNX operators. Classes are axis 1; a weighted mean divides by the weights of the targets; ignored rows are left out.
#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

struct Rows {
  Var losses, weights;
};

/// -weight[label] * log_probability[label] for each row, and the row's weight; 0 for ignored rows. With label smoothing s of C
/// classes the loss is (1 - s) of that and s / C of the sum of -weight * log_probability, as PyTorch has it.
Rows row_losses(NodeContext& n, Var log_probability, Var labels, Var class_weights, double smoothing = 0) {
  Builder& b = n.b();
  n.require(log_probability.rank() >= 2, "scores are ", to_string(log_probability.type()), ", wanted [n, classes, ...]");
  Shape rows = log_probability.shape();
  rows.erase(rows.begin() + 1);
  n.require(labels.shape() == rows, "labels are ", to_string(labels.type()), ", scores ", to_string(log_probability.type()));
  const DType dtype = log_probability.dtype();
  Var hot = b.iota({labels.dtype(), log_probability.shape()}, 1) == b.unreduce(labels, log_probability.shape(), {1});
  auto picked = [&](Var values) { return b.sum(b.select(hot, values, b.like(values, 0)), {1}); };
  Var losses = -picked(log_probability), weights = b.full({dtype, rows}, 1);
  if (class_weights) weights = picked(b.broadcast(class_weights, log_probability.shape(), {1}));
  Var ignored = b.full({DType::boolean, rows}, 0);
  if (n.has_attribute("ignore_index")) {
    ignored = labels == b.like(labels, static_cast<double>(n.integer("ignore_index", 0)));
    weights = b.select(ignored, b.like(weights, 0), weights);
  }
  losses = losses * weights;
  if (smoothing > 0) {
    Var all = log_probability;
    if (class_weights) all = all * b.broadcast(class_weights, all.shape(), {1});
    const double share = smoothing / static_cast<double>(all.dim(1));
    losses = losses * (1 - smoothing) + b.select(ignored, b.like(losses, 0), -b.sum(all, {1}) * share);
  }
  return {losses, weights};
}

/// With probabilities in place of labels, which the operator does not have and PyTorch's exporter writes: for each row the sum of
/// -weight * probability * log_probability, and the weight 1, as PyTorch has it.
Rows expected_losses(NodeContext& n, Var log_probability, Var probability, Var class_weights, double smoothing) {
  Builder& b = n.b();
  if (smoothing > 0)
    probability = probability * (1 - smoothing) + b.like(probability, smoothing / static_cast<double>(probability.dim(1)));
  Var terms = probability * log_probability;
  if (class_weights) terms = terms * b.broadcast(class_weights, terms.shape(), {1});
  Var losses = -b.sum(terms, {1});
  return {losses, b.like(losses, 1)};
}

Var reduced(NodeContext& n, const Rows& rows) {
  const std::string reduction = n.text("reduction", "mean");
  n.require(reduction == "none" || reduction == "sum" || reduction == "mean", "reduction is '", reduction,
            "', wanted none, sum or mean");
  if (reduction == "none") return rows.losses;
  Integers axes;
  for (std::int64_t i = 0; i < rows.losses.rank(); ++i) axes.push_back(i);
  Var sum = n.b().sum(rows.losses, axes);
  return reduction == "sum" ? sum : sum / n.b().sum(rows.weights, axes);
}

Items negative_log_likelihood_row(NodeContext& n) {
  return reduced(n, row_losses(n, n.var(0), n.var(1), n.has(2) ? n.var(2) : Var()));
}

Items softmax_cross_entropy_row(NodeContext& n) {
  Var log_probability = n.b().apply(ops::kLogSoftmax, {n.var(0)}, {{"axis", std::int64_t{1}}});
  const double smoothing = n.label_smoothing();
  if (smoothing > 0)
    n.repair(concat("'", n.name(), "' has the label smoothing ", smoothing, " of the module's code, which the operator lacks"));
  Var target = n.var(1), weights = n.has(2) ? n.var(2) : Var();
  const bool expected = is_float(target.dtype()) && target.shape() == log_probability.shape();
  Var loss = reduced(n, expected ? expected_losses(n, log_probability, target, weights, smoothing)
                                 : row_losses(n, log_probability, target, weights, smoothing));
  return Items::of({loss, log_probability});
}

constexpr Row kLossRows[] = {{"NegativeLogLikelihoodLoss", 12, negative_log_likelihood_row},
                             {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy_row}};

}  // namespace

std::span<const Row> loss_rows() { return kLossRows; }

}  // namespace gcomp::frontend
