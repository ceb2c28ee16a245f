#include "gcomp/predictor.h"

#include "gcomp/saved_model.h"
#include "ir/base/nearest.h"
#include "runtime/artifact.h"

namespace gcomp {

Predictor::Predictor(Model model, PredictOptions options) : model_(std::move(model)), options_(std::move(options)) {
  const runtime::DeviceChoice choice = runtime::choose_device(options_.device, options_.device_options);
  device_reason_ = choice.reason;
  device_ = runtime::open_device(choice.kind, options_.device_options);
}

Predictor Predictor::load(const std::filesystem::path& path, const runtime::DeviceOptions& options, runtime::DeviceRequest device) {
  const runtime::Artifact artifact = runtime::read_artifact(path);
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

void Predictor::prepare(const Batch& inputs) {
  if (!model_) return;
  std::vector<std::pair<std::string, Shape>> shapes;
  GraphOptions options = options_.graph;
  options.target = device_->target();
  if (options_.batch > 0) options.shapes.batch = options_.batch;
  for (const std::string& name : input_names()) {
    TensorType type = find_array(inputs, name).type();
    options.shapes.data[name] = type;
    if (options_.batch > 0 && !type.shape.empty()) type.shape[0] = options_.batch;
    shapes.emplace_back(name, type.shape);
  }
  if (forward_ && shapes == compiled_for_) return;
  ModelGraph made = inference_graph(*model_, options, options_.hooks);
  std::vector<IndexLimit> limits = index_limits(made.graph);
  std::string dependence = options_.batch > 0 ? row_dependence(made.graph) : std::string();
  const std::shared_ptr<runtime::StateMemory> states = device_->allocate_states();
  runtime::Program program = compile_graph(std::move(made.graph), device_->target(), options_.hooks);
  program.name = kForwardProgram;
  forward_ = std::make_shared<Forward>(device_->load(std::move(program), states), made.model.outputs, std::move(limits),
                                       std::move(dependence));
  for (const std::string& name : states->unwritten()) {
    const auto found = made.model.weights.find(name);
    check_internal(found != made.model.weights.end(), "state '", name, "' has no initial value");
    states->write(name, found->second);
  }
  compiled_for_ = std::move(shapes);
  forms_ = made.model.forms;
}

std::vector<NamedTensor> Predictor::predict(const Batch& inputs) {
  prepare(inputs);
  return forward_->run(inputs);
}

}  // namespace gcomp
