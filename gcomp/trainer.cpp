#include "gcomp/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gcomp/driver/describe_model.h"
#include "gcomp/driver/evaluation_sum.h"
#include "gcomp/driver/saved_model.h"
#include "gcomp/driver/step_ports.h"
#include "gcomp/gradients.h"
#include "ir/base/nearest.h"
#include "runtime/artifact.h"
#include "runtime/backend.h"
#include "runtime/convert.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/sha256.h"

namespace gcomp {
namespace {

/// In import's terms: training always has a float type, so that half-precision weights get masters.
GraphOptions with_precision(GraphOptions options) {
  if (!options.precision) options.precision = DType::f32;
  return options;
}

void write_missing(runtime::StateMemory& states, const frontend::Model& model) {
  for (const std::string& name : states.unwritten()) {
    const auto found = model.weights.find(name);
    check_internal(found != model.weights.end(), "state '", name, "' has no initial value");
    states.write(name, found->second);
  }
}

bool is_onnx(const std::filesystem::path& path) {
  const std::filesystem::path ending = path.extension();
  check_user(ending == ".onnx" || ending == ".gcx", "cannot write '", path.string(), "': wanted a name that ends in .onnx or .gcx");
  return ending == ".onnx";
}

}  // namespace

struct Trainer::Impl {
  std::optional<Model> source;  // none after load()
  std::vector<LossOutput> other_outputs;
  TrainOptions options;
  LossSpec loss;
  frontend::Model model;
  SavedModel saved;
  std::vector<std::byte> whole_model;          // what an artifact brought and its successor takes
  std::filesystem::path artifact_path;         // after load()
  std::optional<frontend::OnnxFile> original;  // after prepare_export()
  std::string device_reason;
  std::unique_ptr<runtime::Device> device;
  std::shared_ptr<runtime::StateMemory> memory;
  std::unique_ptr<runtime::Executable> step;
  std::unique_ptr<Forward> forward;
  std::unique_ptr<runtime::Executable> gradient;
  StepPorts ports;  // of `step`
  std::optional<LossScaleStatus> loss_scale;
  std::int64_t steps = 0;
  int pending = 0;    // steps queued, their losses not taken
  int fault_age = 0;  // runs between the one that threw and the last

  void open_device(const runtime::DeviceChoice& choice, const runtime::DeviceOptions& device_options);
  void adopt_step(runtime::Program program, std::span<const std::byte> binary);
  runtime::Program forward_program(std::int64_t batch);
  Forward& forward_pass();
  void fill(runtime::Executable& executable, const Batch& batch);
  std::optional<IndexFault> find_index_fault(runtime::Executable& executable, int age) const;
  template <class Work>
  void naming_index_faults(runtime::Executable& executable, int age, const Work& work) const;
  runtime::Artifact artifact();
};

void Trainer::Impl::open_device(const runtime::DeviceChoice& choice, const runtime::DeviceOptions& device_options) {
  device_reason = choice.reason;
  device = runtime::open_device(choice, device_options);
  memory = device->allocate_states();
}

void Trainer::Impl::adopt_step(runtime::Program program, std::span<const std::byte> binary) {
  step = device->load(std::move(program), memory, binary);
  ports = step_ports(step->program());
}

Trainer::Trainer(const Model& model, const TrainOptions& options) : impl_(std::make_unique<Impl>()) {
  Impl& self = *impl_;
  self.source = model;
  self.options = options;
  self.options.graph = with_precision(options.graph);
  if (options.batch > 0) self.options.graph.shapes.batch = options.batch;
  self.loss = passes::parse_loss(options.loss, options.output);
  self.open_device(runtime::choose_device(options.device, options.device_options), options.device_options);
  self.options.graph.target = self.device->target();
  ModelGraph made = training_graph(model, self.options.graph, self.loss, options.optimizer, options.hooks);
  self.saved = describe_model(model, options.loss, options.learning_rate, &made);
  self.saved.position.seed = static_cast<std::uint64_t>(options.graph.seed);
  self.model = std::move(made.model);
  self.loss = settled(self.loss, made);
  if (made.target) self.other_outputs = made.target->others;
  runtime::Program program =
      compile_graph(std::move(made.graph), self.device->target(), options.hooks, options.graph.program_limits);
  program.name = kTrainingProgram;
  self.adopt_step(std::move(program), {});
  write_missing(*self.memory, self.model);
  self.model.weights.clear();
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Trainer Trainer::load(const std::filesystem::path& path, const runtime::DeviceOptions& options, runtime::DeviceRequest device,
                      const runtime::ArtifactTrust& trust) {
  const runtime::Artifact artifact = runtime::read_artifact(path, trust);
  auto impl = std::make_unique<Impl>();
  impl->saved = saved_model(artifact, path);
  const runtime::Program *step = find_program(artifact, kTrainingProgram), *forward = find_program(artifact, kForwardProgram);
  check_user(step && forward, "'", path.string(), "' holds no training step; make one with gcomp compile --train");
  impl->loss = passes::parse_loss(impl->saved.loss);
  impl->artifact_path = path;
  impl->whole_model = artifact.model;
  impl->options.loss = impl->saved.loss;
  impl->options.learning_rate = impl->saved.learning_rate;
  require_device(device, step->target, path);
  impl->open_device({&runtime::backend_of(step->target), concat("compiled for ", runtime::to_string(step->target))}, options);
  impl->adopt_step(*step, kernel_binary(artifact, *step));
  impl->forward = std::make_unique<Forward>(impl->device->load(*forward, impl->memory, kernel_binary(artifact, *forward)),
                                            impl->saved.outputs, impl->saved.limits, impl->saved.row_dependence);
  for (const auto& [name, tensor] : artifact.weights) impl->memory->write(name, tensor);
  const std::vector<std::string> missing = impl->memory->unwritten();
  check_user(missing.empty(), "'", path.string(), "' lacks the states ", listing(missing));
  return Trainer(std::move(impl));
}

// ---- steps ----

/// Copies the inputs of the executable that are data from the batch.
void Trainer::Impl::fill(runtime::Executable& executable, const Batch& batch) {
  for (const std::size_t i : data_inputs(executable.program())) {
    const runtime::Buffer& input = executable.input_buffer(i);
    const TensorView& array = find_array(batch, input.name);
    check_user(array.type().shape == input.type.shape, "array '", input.name, "' is ", to_string(array.type()), ", wanted ",
               to_string(input.type));
    if (executable.program().inputs[i].role == Role::label) check_labels(array, saved.classes, other_outputs);
    copy_rows(input.name, array, 0, input.type.shape.empty() ? 1 : input.type.shape[0], input.type, executable.input(i));
  }
}

std::optional<IndexFault> Trainer::Impl::find_index_fault(runtime::Executable& executable, int age) const {
  for (const IndexLimit& limit : saved.limits) {
    const std::size_t input = executable.input_index(limit.input);
    if (auto fault = gcomp::find_index_fault(limit, executable.input_buffer(input).type, executable.input_of_run(input, age)))
      return fault;
  }
  return std::nullopt;
}

/// Does `work`; where an index of the run `age` runs before the last was out of range, the error names input, row and value.
template <class Work>
void Trainer::Impl::naming_index_faults(runtime::Executable& executable, int age, const Work& work) const {
  try {
    work();
  } catch (const UserError&) {
    if (const auto fault = find_index_fault(executable, age)) throw UserError(to_string(*fault));
    throw;
  }
}

double Trainer::train_step(const Batch& batch) {
  impl_->fill(*impl_->step, batch);
  return step();
}

std::span<std::byte> Trainer::input(std::string_view name) { return impl_->step->input(name); }
const TensorType& Trainer::input_type(std::string_view name) const {
  return impl_->step->input_buffer(impl_->step->input_index(name)).type;
}

std::span<std::byte> Trainer::input(std::size_t index) {
  const std::vector<std::size_t>& data = impl_->ports.data;
  check_internal(index < data.size(), "input ", index, " of ", data.size());
  return impl_->step->input(data[index]);
}

int Trainer::pending() const { return impl_->pending; }
int Trainer::most_pending() const { return impl_->step->runs_in_flight(); }

void Trainer::start() {
  Impl& self = *impl_;
  check_user(self.pending < most_pending(), "start: the losses of ", self.pending, " steps are to be taken first");
  const std::span<std::byte> rate = self.step->input(self.ports.learning_rate);
  store_from_double(DType::f64, rate.data(), 0, self.options.learning_rate);
  self.fault_age = 0;
  self.naming_index_faults(*self.step, 0, [&] { self.step->run(); });
  ++self.pending;
}

double Trainer::take_loss() {
  Impl& self = *impl_;
  check_user(self.pending > 0, "take_loss: no step was started");
  self.fault_age = --self.pending;
  const auto scalar = [&](std::size_t output) {
    return load_as_double(self.step->output_buffer(output).type.dtype, self.step->output_bytes(output, self.fault_age).data(), 0);
  };
  double loss = 0;
  self.naming_index_faults(*self.step, self.fault_age, [&] { loss = scalar(self.ports.loss); });
  if (self.ports.loss_scale)
    self.loss_scale = {.scale = scalar(*self.ports.loss_scale),
                       .skipped = scalar(*self.ports.skipped) != 0,
                       .dynamic = self.memory->contains("loss_scale")};
  ++self.steps;
  return loss;
}

std::optional<LossScaleStatus> Trainer::loss_scale() const { return impl_->loss_scale; }

double Trainer::step() {
  start();
  while (impl_->pending > 1) take_loss();
  return take_loss();
}

std::vector<std::string> Trainer::input_names() const {
  std::vector<std::string> names;
  for (const std::size_t i : impl_->ports.data) names.push_back(impl_->step->input_buffer(i).name);
  return names;
}

std::int64_t Trainer::batch() const {
  for (const std::size_t i : impl_->ports.data)
    if (const Shape& shape = impl_->step->input_buffer(i).type.shape; !shape.empty()) return shape[0];
  return 0;
}

std::optional<std::int64_t> Trainer::classes() const {
  return impl_->saved.classes > 0 ? std::optional(impl_->saved.classes) : std::nullopt;
}
std::optional<IndexFault> Trainer::find_index_fault() { return impl_->find_index_fault(*impl_->step, impl_->fault_age); }
double Trainer::learning_rate() const { return impl_->options.learning_rate; }
void Trainer::set_learning_rate(double rate) { impl_->options.learning_rate = rate; }
std::int64_t Trainer::steps() const { return impl_->steps; }

const DataPosition& Trainer::data_position() const { return impl_->saved.position; }
void Trainer::set_data_position(const DataPosition& position) { impl_->saved.position = position; }

void Trainer::set_seed(std::uint64_t seed) {
  constexpr std::string_view kState = "random_seed";
  if (!impl_->memory->contains(kState)) return;
  Tensor value(DType::i64, {});
  value.as<std::int64_t>()[0] = static_cast<std::int64_t>(seed);
  impl_->memory->write(kState, value);
}

// ---- inference and gradients on the same states ----

runtime::Program Trainer::Impl::forward_program(std::int64_t batch) {
  GraphOptions graph_options = options.graph;
  if (graph_options.shapes.batch) graph_options.shapes.batch = batch;
  graph_options.loss_output = loss.output;
  ModelGraph made = inference_graph(*source, graph_options, options.hooks);
  describe_forward(saved, made, loss);
  runtime::Program program = compile_graph(std::move(made.graph), device->target(), options.hooks, options.graph.program_limits);
  program.name = kForwardProgram;
  memory->bind(program);
  write_missing(*memory, made.model);
  return program;
}

Forward& Trainer::Impl::forward_pass() {
  if (!forward) {
    runtime::Program program = forward_program(options.graph.shapes.batch.value_or(0));  // says what `saved` then holds
    forward =
        std::make_unique<Forward>(device->load(std::move(program), memory), saved.outputs, saved.limits, saved.row_dependence);
  }
  return *forward;
}

void Trainer::prepare_evaluation() { impl_->forward_pass(); }

std::vector<NamedTensor> Trainer::predict(const Batch& inputs) { return impl_->forward_pass().run(inputs); }

Evaluation Trainer::evaluate(const Batch& arrays) {
  Impl& self = *impl_;
  Forward& forward = self.forward_pass();
  const std::int64_t batch = std::max<std::int64_t>(1, forward.batch());
  check_user(!arrays.empty() && !arrays[0].second.type().shape.empty(), "evaluation needs arrays with rows");
  const std::int64_t rows = arrays[0].second.type().shape[0];
  const TensorView* label = self.saved.has_label ? &find_array(arrays, "label") : nullptr;
  if (label) check_labels(*label, self.saved.classes, self.other_outputs);
  EvaluationSum sum(self.loss.kind, self.saved.axis);
  const runtime::Buffer& output = forward.executable().output_buffer(self.saved.loss_output);
  const TensorType& output_type = output.type;
  for (std::int64_t first = 0; first < rows; first += batch) {
    const std::int64_t count = std::min(batch, rows - first);
    const bool batched = !output_type.shape.empty() && output_type.shape[0] == batch;
    // The loss of a part of a batch cannot be had from a filled-up one where that is one number, or rows depend on each other.
    if (count != batch && !(batched && forward.rows_are_apart())) {
      check_user(first > 0, rows, " rows to evaluate are less than a batch of ", batch,
                 ", and what this model gives for a row depends on the others of its batch");
      break;
    }
    const std::vector<NamedTensor> outputs = forward.run_rows(arrays, first, count);
    Tensor part;
    if (label) {
      TensorType type = label->type();
      type.shape[0] = batch;
      part = Tensor(type);
      copy_rows("label", *label, first, count, type, part.bytes());
    }
    sum.add(outputs[self.saved.loss_output].second, label ? &part : nullptr, count);
  }
  return sum.result();
}

std::vector<NamedTensor> Trainer::gradients(const Batch& batch) {
  Impl& self = *impl_;
  if (!self.gradient) {
    check_user(self.source.has_value(), "gradients need the model itself: a .gcx holds only the compiled training step");
    ModelGraph made = gradient_graph(*self.source, self.options.graph, self.loss, self.options.hooks);
    runtime::Program program =
        compile_graph(std::move(made.graph), self.device->target(), self.options.hooks, self.options.graph.program_limits);
    self.gradient = self.device->load(std::move(program), self.memory);
  }
  self.fill(*self.gradient, batch);
  self.naming_index_faults(*self.gradient, 0, [&] {
    self.gradient->run();
    self.gradient->synchronize();
  });
  std::vector<NamedTensor> results;
  auto parameter = self.saved.trained.begin();
  for (std::size_t i = 0; i < self.gradient->program().outputs.size(); ++i) {
    const bool is_loss = self.gradient->program().outputs[i].role == Role::loss;
    results.emplace_back(is_loss ? "loss" : *parameter++, self.gradient->output(i));
  }
  return results;
}

// ---- states ----

std::vector<std::string> Trainer::trained() const { return impl_->saved.trained; }

std::vector<std::string> Trainer::states() const {
  std::vector<std::string> names;
  for (const runtime::StateEntry& entry : impl_->memory->entries()) names.push_back(entry.name);
  return names;
}

Tensor Trainer::read(std::string_view state) const { return impl_->memory->read(state); }

void Trainer::write(std::string_view state, const TensorView& value) {
  const TensorType& type = impl_->memory->entry(state).type;
  check_user(value.type().shape == type.shape, "state '", state, "' is ", to_string(type), ", the value written to it is ",
             to_string(value.type()));
  Tensor tensor(value.type());
  std::copy(value.bytes().begin(), value.bytes().end(), tensor.bytes().begin());
  impl_->memory->write(state,
                       tensor.dtype() == type.dtype ? tensor : runtime::convert(tensor, type.dtype, concat("state '", state, "'")));
}

void Trainer::check_finite() const {
  for (const std::string& name : impl_->saved.weights) {
    if (!impl_->memory->contains(name) || !is_float(impl_->memory->entry(name).type.dtype)) continue;
    const Tensor value = impl_->memory->read(name);
    std::int64_t bad = 0;
    double first = 0;
    for (std::int64_t i = 0; i < value.elements(); ++i)
      if (!std::isfinite(value.at(i)) && bad++ == 0) first = value.at(i);
    if (bad > 0)
      throw UserError(concat("parameter '", name, "' is no longer finite: ", bad, " of ", value.elements(),
                             " elements are NaN or infinite, the first is ", first),
                      ExitCode::numeric);
  }
}

std::string Trainer::weights_digest() const {
  std::string summary;
  for (const std::string& name : impl_->saved.weights) {
    if (!impl_->memory->contains(name)) continue;
    const Tensor value = impl_->memory->read(name);
    summary += concat(name.size(), " ", name, " ", to_string(value.type()), " ", runtime::sha256(value.bytes()), "\n");
  }
  return runtime::sha256(std::as_bytes(std::span(summary)));
}

// ---- files ----

runtime::Artifact Trainer::Impl::artifact() {
  runtime::Artifact artifact;
  Forward& inference = forward_pass();
  artifact.programs = {step->program(), inference.executable().program()};
  const auto add_binary = [&](const runtime::Executable& executable) {
    const std::span<const std::byte> binary = executable.kernel_binary();
    artifact.binaries.emplace_back(kernel_binary_name(executable.program()), std::vector(binary.begin(), binary.end()));
  };
  add_binary(*step);
  add_binary(inference.executable());
  for (const runtime::StateEntry& entry : memory->entries()) artifact.weights.emplace(entry.name, memory->read(entry.name));
  saved.learning_rate = options.learning_rate;
  if (source && source->onnx() && !saved.original)
    saved.original = keep_original(*source->onnx(), model, options.keep_model, artifact);
  if (artifact.model.empty()) artifact.model = whole_model;
  if (artifact.model.empty() && saved.original && options.keep_model == KeepModel::whole && model.source)
    embed_original(*saved.original, model, artifact);
  whole_model = artifact.model;
  store(saved, artifact);
  return artifact;
}

void Trainer::prepare_export() {
  Impl& self = *impl_;
  if (self.source || self.model.source) return;
  check_user(self.saved.original.has_value(), "'", self.artifact_path.string(),
             "' did not come from an ONNX file; write --out as .gcx");
  self.original = open_original(*self.saved.original, self.whole_model, self.artifact_path);
  self.model.source = self.original->source;
  self.model.aliases = self.saved.original->aliases;
  self.model.forms.training = self.saved.original->training_form;
}

std::vector<frontend::FileStamp> Trainer::model_files() const {
  if (impl_->original) return impl_->original->files;
  return impl_->source && impl_->source->onnx() ? impl_->source->onnx()->files : std::vector<frontend::FileStamp>();
}

void Trainer::set_keep_model(KeepModel keep) { impl_->options.keep_model = keep; }

void Trainer::set_export_form(frontend::ExportForm form) { impl_->options.export_form = form; }

void Trainer::save(const std::filesystem::path& path) {
  Impl& self = *impl_;
  if (!is_onnx(path)) return runtime::write_artifact(path, self.artifact());
  prepare_export();
  check_user(self.model.source != nullptr, "'", path.string(), "': the model did not come from an ONNX file; save it as .gcx");
  std::map<std::string, Tensor> weights;
  for (const std::string& name : self.saved.weights)
    if (self.memory->contains(name)) weights.emplace(name, self.memory->read(name));
  const std::string bytes = frontend::export_onnx_bytes(self.model, weights, self.options.export_form);
  runtime::write_file(path, std::as_bytes(std::span(bytes)));
}

const std::string& Trainer::loss_output() const { return impl_->loss.output; }
const std::vector<LossOutput>& Trainer::other_outputs() const { return impl_->other_outputs; }
const frontend::Model& Trainer::model() const { return impl_->model; }
std::string Trainer::device() const { return concat(impl_->device->description(), " (", impl_->device_reason, ")"); }
runtime::Executable& Trainer::executable() { return *impl_->step; }

Trainer compile(const Model& model, const TrainOptions& options) { return Trainer(model, options); }

}  // namespace gcomp
