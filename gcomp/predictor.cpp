#include "gcomp/predictor.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "gcomp/driver/forward.h"
#include "gcomp/driver/graph_index_limits.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/options.h"
#include "gcomp/driver/prediction.h"
#include "gcomp/driver/row_batches.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/nearest.h"
#include "runtime/artifact.h"
#include "runtime/device.h"

namespace gcomp {

struct Predictor::Impl {
  using Types = std::map<std::string, TensorType>;

  std::optional<Model> model;  // none of a .gcx
  driver::PredictOptions options;
  std::string device_reason;
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<driver::Forward> forward;
  Types compiled_for;
  driver::RowBatches rows;
  frontend::FormCounts forms;

  Impl(Model source, const driver::PredictOptions& given);
  /// From a .gcx file.
  Impl(const Path& path, const DeviceOptions& device_options, DeviceRequest request, const ArtifactTrust& trust);
  bool serves(const Types& types) const;
  void prepare(const Types& types);
  /// Throws UserError where nothing is compiled yet.
  driver::Forward& compiled() const {
    check_user(forward != nullptr, "nothing is compiled yet: Predictor::prepare() or predict() come first");
    return *forward;
  }
};

Predictor::Impl::Impl(Model source, const driver::PredictOptions& given) : model(std::move(source)), options(given) {
  const runtime::DeviceChoice choice = runtime::choose_device(options.device, options.device_options);
  device_reason = choice.reason;
  device = runtime::open_device(choice, options.device_options);
}

Predictor::Impl::Impl(const Path& path, const DeviceOptions& device_options, DeviceRequest request, const ArtifactTrust& trust) {
  const runtime::Artifact artifact = runtime::read_artifact(path.string(), trust);
  const driver::SavedModel saved = driver::saved_model(artifact, path.string());
  const runtime::Program* program = driver::find_program(artifact, driver::kForwardProgram);
  check_user(program, "'", path.string(), "' holds no forward pass");
  options.graph.input_forms = saved.input_forms;
  options.graph.preprocessing = saved.preprocessing;
  options.graph.number_names = saved.number_names;
  driver::require_device(request, program->target, path.string());
  device_reason = concat("compiled for ", runtime::to_string(program->target));
  device = runtime::open_device(program->target.kind, device_options);
  const std::shared_ptr<runtime::StateMemory> states = device->allocate_states();
  forward = std::make_unique<driver::Forward>(device->load(*program, states, driver::kernel_binary(artifact, *program)),
                                              saved.outputs, saved.limits, saved.row_dependence);
  for (const auto& [name, tensor] : artifact.weights)
    if (states->contains(name)) states->write(name, tensor);
  const std::vector<std::string> missing = states->unwritten();
  check_user(missing.empty(), "'", path.string(), "' lacks the states ", listing(missing));
}

Predictor::Predictor(Model model, const PredictOptions& options)
    : Predictor(driver::make_predictor(std::move(model), driver::predict_options(options))) {}
Predictor::Predictor(Owned<Impl> impl) : impl_(std::move(impl)) {}
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;
Predictor::~Predictor() = default;

Predictor Predictor::load(const Path& path, const DeviceOptions& options, DeviceRequest device, const ArtifactTrust& trust) {
  return Predictor(Owned(new Impl(path, options, device, trust)));
}

void Predictor::prepare(const std::vector<NamedType>& types) { impl_->prepare({types.begin(), types.end()}); }
std::int64_t Predictor::batch() const { return impl_->compiled().batch(); }
const std::string& Predictor::undivided() const { return impl_->rows.reason; }

std::vector<std::string> Predictor::input_names() const {
  std::vector<std::string> names;
  if (impl_->model) {
    for (const ValueInfo& input : impl_->model->inputs()) names.push_back(input.name);
  } else {
    for (std::size_t i = 0; i < impl_->forward->executable().program().inputs.size(); ++i)
      names.push_back(impl_->forward->executable().input_buffer(i).name);
  }
  return names;
}

const std::vector<InputForm>& Predictor::input_forms() const { return impl_->options.graph.input_forms; }
const std::string& Predictor::preprocessing() const { return impl_->options.graph.preprocessing; }
const std::string& Predictor::number_names() const { return impl_->options.graph.number_names; }

std::string Predictor::device() const { return concat(impl_->device->description(), " (", impl_->device_reason, ")"); }

/// Whether the compiled program takes arrays of these types: element types are converted, and batches hold any number of rows.
bool Predictor::Impl::serves(const Types& types) const {
  if (!forward) return false;
  const std::size_t fixed_from = rows.batch > 0 ? 1 : 0;
  const auto tail = [&](const Shape& shape) { return std::span(shape).subspan(std::min(shape.size(), fixed_from)); };
  return std::ranges::equal(types, compiled_for, [&](const auto& a, const auto& b) {
    return a.first == b.first && a.second.shape.size() == b.second.shape.size() &&
           std::ranges::equal(tail(a.second.shape), tail(b.second.shape));
  });
}

void Predictor::Impl::prepare(const Types& types) {
  if (!model || serves(types)) return;
  for (const ValueInfo& input : model->inputs())
    check_user(types.contains(input.name), "model '", model->name(), "', input ", to_string(input), ": no type of it was given");
  const auto kept = driver::keep_data(*model);
  driver::GraphOptions graph = options.graph;
  graph.target = device->target();
  graph.shapes.data = types;
  driver::RowBatches batches = options.batch > 0 ? driver::RowBatches{options.batch, ""} : driver::row_batches(*model, graph);
  if (batches.batch > 0) graph.shapes.batch = batches.batch;
  driver::ModelGraph made = driver::inference_graph(*model, graph, options.hooks);
  std::vector<driver::IndexLimit> limits = driver::index_limits(made.graph);
  std::string dependence;
  if (batches.batch > 0)
    dependence = options.batch > 0 ? driver::row_dependence(*model, graph, made.graph) : driver::row_dependence(made.graph);
  const std::shared_ptr<runtime::StateMemory> states = device->allocate_states();
  runtime::Program program = driver::compile_graph(std::move(made.graph), device->target(), options.hooks, graph.program_limits);
  program.name = driver::kForwardProgram;
  forward = std::make_unique<driver::Forward>(device->load(std::move(program), states), made.model.outputs, std::move(limits),
                                              std::move(dependence));
  for (const std::string& name : states->unwritten()) states->write(name, made.model.weights.at(name));
  compiled_for = types;
  rows = std::move(batches);
  forms = made.model.forms;
}

bool Predictor::runs_in_batches() const {
  const driver::Forward& forward = impl_->compiled();
  return (impl_->rows.batch > 0 || !impl_->model) && forward.batch() > 0 && forward.rows_are_apart() &&
         forward.has_batched_outputs();
}

std::vector<NamedType> Predictor::output_types(std::int64_t rows) const {
  std::vector<NamedType> types;
  driver::Forward& forward = impl_->compiled();
  for (std::size_t i = 0; i < forward.outputs().size(); ++i) {
    TensorType type = forward.executable().output_buffer(i).type;
    type.shape[0] = rows;
    types.emplace_back(forward.outputs()[i], std::move(type));
  }
  return types;
}

std::vector<NamedTensor> Predictor::predict(const Batch& inputs, std::int64_t first_row) {
  Impl::Types types;
  for (const std::string& name : input_names()) types.emplace(name, driver::find_array(inputs, name).type());
  impl_->prepare(types);
  return impl_->forward->run(inputs, first_row);
}

namespace driver {

PredictOptions predict_options(const gcomp::PredictOptions& options) {
  check_user(options.batch >= 0, "PredictOptions::batch is ", options.batch, "; wanted 1 or more, or 0");
  PredictOptions made{.batch = options.batch,
                      .graph = graph_options(options.graph),
                      .device = options.device,
                      .device_options = options.device_options,
                      .hooks = compile_hooks(options.hooks)};
  if (!options.adapter.empty())
    made.graph.lora.adapter = std::make_shared<const AdapterFile>(read_adapter(options.adapter.string()));
  return made;
}

Predictor make_predictor(Model model, const PredictOptions& options) {
  return Predictor(Owned(new Predictor::Impl(std::move(model), options)));
}

Forward& forward_of(const Predictor& predictor) { return *predictor.impl().forward; }

std::vector<NamedType> program_inputs(const Predictor& predictor) {
  const runtime::Executable& executable = predictor.impl().forward->executable();
  std::vector<NamedType> types;
  for (std::size_t i = 0; i < executable.program().inputs.size(); ++i)
    types.emplace_back(executable.input_buffer(i).name, executable.input_buffer(i).type);
  return types;
}

std::vector<NamedType> program_outputs(const Predictor& predictor) {
  driver::Forward& forward = *predictor.impl().forward;
  std::vector<NamedType> types;
  for (std::size_t i = 0; i < forward.outputs().size(); ++i)
    types.emplace_back(forward.outputs()[i], forward.executable().output_buffer(i).type);
  return types;
}

frontend::FormCounts::Nodes switched_forms(const Predictor& predictor) {
  const Predictor::Impl& impl = predictor.impl();
  return impl.options.graph.training_form ? impl.forms.inference : impl.forms.training;
}

}  // namespace driver
}  // namespace gcomp
