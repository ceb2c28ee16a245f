#include "gcomp/predictor.h"

#include <algorithm>
#include <span>

#include "gcomp/driver/graph_index_limits.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/nearest.h"
#include "runtime/artifact.h"

namespace gcomp {

Predictor::Predictor(Model model, PredictOptions options) : model_(std::move(model)), options_(std::move(options)) {
  const runtime::DeviceChoice choice = runtime::choose_device(options_.device, options_.device_options);
  device_reason_ = choice.reason;
  device_ = runtime::open_device(choice, options_.device_options);
}

Predictor Predictor::load(const std::filesystem::path& path, const runtime::DeviceOptions& options, runtime::DeviceRequest device,
                          const runtime::ArtifactTrust& trust) {
  const runtime::Artifact artifact = runtime::read_artifact(path, trust);
  const SavedModel saved = saved_model(artifact, path);
  const runtime::Program* forward = find_program(artifact, kForwardProgram);
  check_user(forward, "'", path.string(), "' holds no forward pass");
  require_device(device, forward->target, path);
  Predictor predictor;
  predictor.device_reason_ = concat("compiled for ", runtime::to_string(forward->target));
  predictor.device_ = runtime::open_device(forward->target.kind, options);
  const std::shared_ptr<runtime::StateMemory> states = predictor.device_->allocate_states();
  predictor.forward_ = std::make_shared<Forward>(predictor.device_->load(*forward, states, kernel_binary(artifact, *forward)),
                                                 saved.outputs, saved.limits, saved.row_dependence);
  for (const auto& [name, tensor] : artifact.weights)
    if (states->contains(name)) states->write(name, tensor);
  const std::vector<std::string> missing = states->unwritten();
  check_user(missing.empty(), "'", path.string(), "' lacks the states ", listing(missing));
  return predictor;
}

std::vector<std::string> Predictor::input_names() const {
  std::vector<std::string> names;
  if (model_) {
    for (const frontend::ValueInfo& input : model_->inputs()) names.push_back(input.name);
  } else {
    for (std::size_t i = 0; i < forward_->executable().program().inputs.size(); ++i)
      names.push_back(forward_->executable().input_buffer(i).name);
  }
  return names;
}

frontend::FormCounts::Nodes Predictor::switched_forms() const {
  return options_.graph.training_form ? forms_.inference : forms_.training;
}

std::string Predictor::device() const { return concat(device_->description(), " (", device_reason_, ")"); }

/// Whether the compiled program takes arrays of these types: element types are converted, and batches hold any number of rows.
bool Predictor::serves(const std::map<std::string, TensorType>& types) const {
  if (!forward_) return false;
  const std::size_t fixed_from = rows_.batch > 0 ? 1 : 0;
  const auto tail = [&](const Shape& shape) { return std::span(shape).subspan(std::min(shape.size(), fixed_from)); };
  return std::ranges::equal(types, compiled_for_, [&](const auto& a, const auto& b) {
    return a.first == b.first && a.second.shape.size() == b.second.shape.size() &&
           std::ranges::equal(tail(a.second.shape), tail(b.second.shape));
  });
}

void Predictor::prepare(const std::map<std::string, TensorType>& types) {
  if (!model_ || serves(types)) return;
  GraphOptions options = options_.graph;
  options.target = device_->target();
  options.shapes.data = types;
  RowBatches rows = options_.batch > 0 ? RowBatches{options_.batch, ""} : row_batches(*model_, options);
  if (rows.batch > 0) options.shapes.batch = rows.batch;
  ModelGraph made = inference_graph(*model_, options, options_.hooks);
  std::vector<IndexLimit> limits = index_limits(made.graph);
  std::string dependence = rows.batch > 0 ? row_dependence(made.graph) : std::string();
  const std::shared_ptr<runtime::StateMemory> states = device_->allocate_states();
  runtime::Program program = compile_graph(std::move(made.graph), device_->target(), options_.hooks, options.program_limits);
  program.name = kForwardProgram;
  forward_ = std::make_shared<Forward>(device_->load(std::move(program), states), made.model.outputs, std::move(limits),
                                       std::move(dependence));
  for (const std::string& name : states->unwritten()) {
    const auto found = made.model.weights.find(name);
    check_internal(found != made.model.weights.end(), "state '", name, "' has no initial value");
    states->write(name, found->second);
  }
  compiled_for_ = types;
  rows_ = std::move(rows);
  forms_ = made.model.forms;
}

bool Predictor::runs_in_batches() const {
  return (rows_.batch > 0 || !model_) && forward_->batch() > 0 && forward_->rows_are_apart() && forward_->has_batched_outputs();
}

std::vector<std::pair<std::string, TensorType>> Predictor::output_types(std::int64_t rows) const {
  std::vector<std::pair<std::string, TensorType>> types;
  for (std::size_t i = 0; i < forward_->outputs().size(); ++i) {
    TensorType type = forward_->executable().output_buffer(i).type;
    type.shape[0] = rows;
    types.emplace_back(forward_->outputs()[i], std::move(type));
  }
  return types;
}

std::vector<NamedTensor> Predictor::predict(const Batch& inputs, std::int64_t first_row) {
  std::map<std::string, TensorType> types;
  for (const std::string& name : input_names()) types.emplace(name, find_array(inputs, name).type());
  prepare(types);
  return forward_->run(inputs, first_row);
}

}  // namespace gcomp
