#include "gcomp/driver/describe_model.h"

#include "gcomp/driver/graph_index_limits.h"
#include "gcomp/driver/row_batches.h"
#include "ir/base/error.h"

namespace gcomp::driver {
SavedModel describe_model(const Model& model, const std::string& loss, double learning_rate, const ModelGraph* training) {
  SavedModel saved;
  saved.model = model.name();
  saved.loss = loss;
  saved.learning_rate = learning_rate;
  if (!training) return saved;
  for (const passes::LossArray& array : training->target.bound.arrays)
    saved.labels.push_back({array.name, array.classes, array.ignored});
  saved.trained = trained_names(training->model);
  saved.lora = training->lora;
  saved.weights = training->model.weights.names();
  saved.outputs = training->model.outputs;
  saved.limits = index_limits(training->accumulation ? training->accumulation->shard : training->graph);
  return saved;
}

void describe_forward(SavedModel& saved, const Model& model, const GraphOptions& options, const ModelGraph& forward) {
  saved.outputs = forward.model.outputs;
  saved.limits = index_limits(forward.graph);
  saved.row_dependence = row_dependence(model, options, forward.graph);
  if (saved.loss.empty()) saved.weights = forward.model.weights.names();
}

void describe_evaluation(SavedModel& saved, const EvaluationGraph& evaluation, std::span<const passes::MetricSpec> metrics) {
  saved.evaluation = SavedEvaluation{.term_is_sum = evaluation.plan.term_is_sum,
                                     .takes_parts = evaluation.plan.takes_parts && evaluation.row_dependence.empty(),
                                     .limits = index_limits(evaluation.made.graph),
                                     .metrics = {}};
  for (const passes::MetricSpec& metric : metrics)
    saved.evaluation->metrics.push_back({metric.text, metric.takes_scores, metric.of_classes});
}

EvaluatedModel evaluated_model(const SavedModel& saved) {
  const SavedEvaluation& evaluation = *saved.evaluation;
  EvaluatedModel made{.loss = passes::parse_loss(saved.loss), .metrics = {}, .plan = {}, .limits = evaluation.limits};
  const std::size_t terms = passes::term_count(made.loss);
  check_user(evaluation.term_is_sum.size() == terms, "it has ", evaluation.term_is_sum.size(), " terms, the loss ", terms);
  made.plan.term_is_sum = evaluation.term_is_sum;
  made.plan.takes_parts = evaluation.takes_parts;
  for (const SavedMetric& saved_metric : evaluation.metrics) {
    passes::MetricSpec metric = passes::parse_metric(saved_metric.text);
    metric.takes_scores = saved_metric.takes_scores;
    metric.of_classes = saved_metric.of_classes;
    made.plan.metric_outputs.push_back(passes::output_count(metric));
    made.metrics.push_back(std::move(metric));
  }
  return made;
}

}  // namespace gcomp::driver
