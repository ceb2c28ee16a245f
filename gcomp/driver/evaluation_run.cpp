#include "gcomp/driver/evaluation_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "gcomp/driver/evaluator.h"
#include "gcomp/driver/forward.h"
#include "gcomp/driver/graph_index_limits.h"
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

}  // namespace

EvaluationRun evaluate(const Model& model, const EvaluateOptions& options, const Batch& arrays) {
  const runtime::DeviceChoice choice = runtime::choose_device(options.device, options.device_options);
  const std::unique_ptr<runtime::Device> device = runtime::open_device(choice, options.device_options);
  GraphOptions graph = options.graph;
  graph.target = device->target();
  for (const auto& [name, array] : arrays) graph.shapes.data.insert_or_assign(name, array.type());
  const std::int64_t rows = common_rows(arrays);
  check_user(rows > 0, "evaluation needs arrays with rows");
  graph.shapes.batch = rows_of_a_run(model, options, graph, rows);
  EvaluationGraph made = evaluation_graph(model, graph, options.loss, options.metrics, options.hooks);
  for (const passes::LossArray& array : made.made.target.bound.arrays)
    check_labels(find_array(arrays, array.name), {array.name, array.classes, array.ignored}, made.made.target.others);
  made.plan.takes_parts = made.plan.takes_parts && made.row_dependence.empty();
  EvaluatedModel evaluated{
      .loss = options.loss, .metrics = options.metrics, .plan = std::move(made.plan), .limits = index_limits(made.made.graph)};
  runtime::Program program = compile_graph(std::move(made.made.graph), device->target(), options.hooks, graph.program_limits);
  const std::shared_ptr<runtime::StateMemory> states = device->allocate_states();
  Evaluator evaluator(device->load(std::move(program), states), std::move(evaluated));
  for (const std::string& name : states->unwritten()) states->write(name, made.made.model.weights.at(name));
  EvaluationRun run{.evaluation = evaluator.run(arrays),
                    .output = made.made.target.output,
                    .model = std::move(made.made.model),
                    .device = concat(device->description(), " (", choice.reason, ")")};
  run.model.weights.clear();
  return run;
}

}  // namespace gcomp::driver
