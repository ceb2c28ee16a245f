#include "gcomp/driver/fit/metric_lines.h"

namespace gcomp::driver {

std::vector<runtime::Metric> metrics_of_step(const FitStep& step) {
  std::vector<runtime::Metric> fields{{"step", step.step}, {"epoch", step.epoch}, {"loss", step.loss}, {"lr", step.learning_rate}};
  if (!step.group_rates.empty()) fields.emplace_back("lr_groups", step.group_rates);
  if (step.gradient_norm) fields.emplace_back("gradient_norm", *step.gradient_norm);
  if (step.loss_scale) fields.emplace_back("loss_scale", step.loss_scale->scale);
  if (step.skipped) fields.emplace_back("skipped", std::int64_t{*step.skipped});
  return fields;
}

std::vector<runtime::Metric> metrics_of_evaluation(const FitEvaluation& evaluation, std::string_view source) {
  const Evaluation& found = evaluation.evaluation;
  std::vector<runtime::Metric> fields{{"eval", source}, {"epoch", evaluation.epoch}, {"loss", found.loss}};
  if (found.accuracy) fields.emplace_back("accuracy", *found.accuracy);
  for (const auto& [name, value] : found.metrics) {
    if (name == "accuracy") continue;
    if (value.shape().empty()) fields.emplace_back(name, value.at(0));
    else fields.emplace_back(name, &value);
  }
  return fields;
}

}  // namespace gcomp::driver
