// What an evaluation tells of a model beside its loss: entries of a table, called as losses are.
//
//   accuracy        top_k(k=5)        rmse(aux, target)
//
// Each is computed from sums that the device makes of every batch, but for auc, which ranks all scores.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/training/losses/loss.h"

namespace gcomp::passes {

struct MetricSpec : FormulaSpec {
  bool takes_scores = false;  ///< what it looks at is a loss's scores: yes is above 0, not above one half
  bool of_classes = false;    ///< targets like the input are probabilities of its classes

  bool is_accuracy() const { return expression.text == "accuracy"; }
};

/// Throws UserError (exit 2), at its place in the text, as parse_loss() does.
MetricSpec parse_metric(std::string_view text, std::string_view output = {});
/// accuracy, where a term of the loss decides between classes, of what that term compares; nothing elsewhere.
std::vector<MetricSpec> default_metrics(const LossSpec& loss);

std::span<const Definition* const> metric_definitions();
/// Whether a greater value of this metric is a better one; none where values have no order, as of confusion. Throws UserError
/// (exit 2) as parse_metric() does.
std::optional<bool> higher_is_better(std::string_view metric);

std::vector<std::string> possible_arrays(const MetricSpec& metric);
std::vector<std::string> possible_outputs(const MetricSpec& metric);

/// What the outputs of an evaluating graph are.
struct EvaluationPlan {
  /// For each term of the loss, in the order of the text: whether it is a sum and what it is divided by, two outputs, or the mean
  /// over the batch, one.
  std::vector<bool> term_is_sum;
  /// For each metric, how many outputs it has.
  std::vector<int> metric_outputs;

  /// Whether a batch may be filled up with rows that count for nothing.
  bool takes_parts = false;
};

/// The loss's terms and the metrics become the outputs, of Role::evaluated; rows from the input `rows` on (i64[], Role::rows),
/// where the plan takes parts, count for nothing. Throws as bind_loss(). `bound`, where given, becomes what they read.
EvaluationPlan attach_evaluation(ir::Graph& graph, const LossSpec& loss, const std::vector<MetricSpec>& metrics,
                                 const std::map<std::string, TensorType>& arrays, BoundLoss* bound = nullptr);

/// What sums over all batches come to: scalars or, for confusion, [target, predicted]. f64.
Tensor metric_value(const MetricSpec& metric, std::span<const Tensor> sums);
/// How many outputs a metric has in an evaluating graph.
int output_count(const MetricSpec& metric);
/// Whether a metric's outputs are rows to be kept, not sums to be added.
bool keeps_rows(const MetricSpec& metric);

}  // namespace gcomp::passes
