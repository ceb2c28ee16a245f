#include "gcomp/driver/describe_model.h"

#include "gcomp/driver/graph_index_limits.h"

namespace gcomp::driver {
namespace {

std::vector<std::string> names_of_weights(const frontend::ImportedModel& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.weights) names.push_back(name);
  return names;
}

}  // namespace

SavedModel describe_model(const Model& model, const std::string& loss, double learning_rate, const ModelGraph* training) {
  SavedModel saved;
  saved.model = model.name();
  saved.loss = loss;
  saved.learning_rate = learning_rate;
  if (!training) return saved;
  if (const auto& target = training->target) {
    saved.axis = target->label.axis;
    saved.classes = target->output.classes;
    saved.has_label = true;
  }
  saved.trained = trained_names(training->model);
  saved.weights = names_of_weights(training->model);
  saved.outputs = training->model.outputs;
  saved.limits = index_limits(training->graph);
  return saved;
}

void describe_forward(SavedModel& saved, const ModelGraph& forward, const LossSpec& loss) {
  saved.outputs = forward.model.outputs;
  saved.limits = index_limits(forward.graph);
  saved.row_dependence = row_dependence(forward.graph);
  if (saved.loss.empty()) saved.weights = names_of_weights(forward.model);
  else saved.loss_output = loss_output(loss, forward.model.outputs);
}

}  // namespace gcomp::driver
