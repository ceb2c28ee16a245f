#include "gcomp/driver/evaluation_run.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "gcomp/driver/evaluator.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/forward.h"
#include "gcomp/driver/graph_index_limits.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/opened_data.h"
#include "gcomp/driver/row_batches.h"
#include "runtime/device.h"

namespace gcomp::driver {
namespace {

/// The rows of one run: as asked for, or as the model's shapes have it, and no more than there are.
std::int64_t rows_of_a_run(const Model& model, const EvaluateOptions& options, const GraphOptions& graph, std::int64_t rows) {
  const std::int64_t wanted = options.batch > 0 ? options.batch : row_batches(model, graph).batch;
  return wanted > 0 ? std::min(wanted, rows) : rows;
}

std::int64_t common_rows(const Batch& arrays) {
  for (const auto& [name, array] : arrays)
    if (!array.type().shape.empty()) return array.type().shape[0];
  throw UserError("evaluation needs arrays with rows");
}

/// What is evaluated, as far as compiling looks at it.
struct EvaluatedRows {
  std::map<std::string, TensorType> types;  // with all rows
  std::int64_t rows = 0;
  std::function<void(const LossTarget&)> check;
  std::function<Evaluation(Evaluator&, const LossTarget&)> run;
};

EvaluationRun evaluate_rows(const Model& model, const EvaluateOptions& options, const EvaluatedRows& what) {
  const runtime::DeviceChoice choice = runtime::choose_device(options.device, options.device_options);
  const std::unique_ptr<runtime::Device> device = runtime::open_device(choice, options.device_options);
  const auto kept = keep_data(model);
  GraphOptions graph = options.graph;
  graph.target = device->target();
  for (const auto& [name, type] : what.types) graph.shapes.data.insert_or_assign(name, type);
  check_user(what.rows > 0, "evaluation needs arrays with rows");
  graph.shapes.batch = rows_of_a_run(model, options, graph, what.rows);
  EvaluationGraph made = evaluation_graph(model, graph, options.loss, options.metrics, options.hooks);
  what.check(made.made.target);
  made.plan.takes_parts = made.plan.takes_parts && made.row_dependence.empty();
  EvaluatedModel evaluated{
      .loss = options.loss, .metrics = options.metrics, .plan = std::move(made.plan), .limits = index_limits(made.made.graph)};
  runtime::Program program = compile_graph(std::move(made.made.graph), device->target(), options.hooks, graph.program_limits);
  const std::shared_ptr<runtime::StateMemory> states = device->allocate_states();
  Evaluator evaluator(device->load(std::move(program), states), std::move(evaluated));
  for (const std::string& name : states->unwritten()) states->write(name, made.made.model.weights.at(name));
  EvaluationRun run{.evaluation = what.run(evaluator, made.made.target),
                    .output = made.made.target.output,
                    .model = std::move(made.made.model),
                    .device = concat(device->description(), " (", choice.reason, ")")};
  run.model.weights.clear();
  return run;
}

std::vector<LabelLimit> label_limits_of(const LossTarget& target) {
  std::vector<LabelLimit> limits;
  for (const passes::LossArray& array : target.bound.arrays)
    if (array.classes > 0) limits.push_back({array.name, array.classes, array.ignored});
  return limits;
}

}  // namespace

EvaluationRun evaluate(const Model& model, const EvaluateOptions& options, const Batch& arrays) {
  EvaluatedRows what{.types = {}, .rows = common_rows(arrays), .check = {}, .run = {}};
  for (const auto& [name, array] : arrays) what.types.insert_or_assign(name, array.type());
  what.check = [&](const LossTarget& target) {
    for (const passes::LossArray& array : target.bound.arrays)
      check_labels(find_array(arrays, array.name), {array.name, array.classes, array.ignored}, target.others);
  };
  what.run = [&](Evaluator& evaluator, const LossTarget&) { return evaluator.run(arrays); };
  return evaluate_rows(model, options, what);
}

EvaluationRun evaluate(const Model& model, const EvaluateOptions& options, const Dataset& data, int workers) {
  EvaluatedRows what{.types = types_of(data), .rows = data.rows(), .check = [](const LossTarget&) {}, .run = {}};
  what.run = [&](Evaluator& evaluator, const LossTarget& target) {
    const std::vector<LabelLimit> limits = label_limits_of(target);
    const FedArrays fed = fed_arrays(evaluator.executable().program(), limits);
    return evaluator.run(data, limits, workers < 0 ? default_workers(data, fed) : workers);
  };
  return evaluate_rows(model, options, what);
}

}  // namespace gcomp::driver
