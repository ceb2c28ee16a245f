#include "passes/training/training.h"

#include <algorithm>
#include <utility>

#include "passes/pipeline.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// The loss becomes the only output.
void show_alone(Graph& graph, Value* loss) {
  graph.clear_outputs();
  graph.add_output(loss, Role::loss);
}

}  // namespace

std::vector<Value*> states_named(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Value*> values;
  for (const std::string& name : names) {
    auto it = std::find_if(graph.states().begin(), graph.states().end(), [&](const State& s) { return s.value->name == name; });
    check_internal(it != graph.states().end(), "no state named '", name, "'");
    values.push_back(it->value);
  }
  return values;
}

std::vector<Value*> counters_of(const Graph& graph) {
  std::vector<Value*> values;
  for (const State& state : graph.states())
    if (state.role == StateRole::counter) values.push_back(state.value);
  return values;
}

void show_loss(Graph& graph, Value* loss, const StepReport& report) {
  show_alone(graph, loss);
  if (report.scale) graph.add_output(report.scale, Role::loss_scale);
  if (report.skipped) graph.add_output(report.skipped, Role::skipped);
  if (report.gradient_norm) graph.add_output(report.gradient_norm, Role::gradient_norm);
  graph.set_name("train_step");
  graph.remove_dead();
}

void show_gradients(Graph& graph, Value* loss, const std::vector<Value*>& gradients) {
  show_alone(graph, loss);
  for (Value* gradient : gradients) graph.add_output(gradient, Role::gradient);
  graph.set_name("gradients");
  graph.remove_updates();
  graph.remove_dead();
}

void make_training_step(Graph& graph, const LossSpec& loss, const OptimizerSpec& optimizer, const std::vector<std::string>& trained,
                        const std::optional<TensorType>& label, const std::optional<LossScaling>& scaling,
                        const StepOptions& step) {
  std::map<std::string, TensorType> arrays;
  if (label) arrays.emplace(kLabelArray, *label);
  const TrainingRequest request{loss, optimizer, trained, std::move(arrays), scaling, step};
  prepare(graph, {}, &request);
}

}  // namespace gcomp::passes
