#include "gcomp/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "gcomp/driver/averaged_program.h"
#include "gcomp/driver/not_a_number.h"
#include "gcomp/driver/onnx_output.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/finite.h"
#include "passes/training/average_parameters.h"
#include "runtime/convert.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/sha256.h"

namespace gcomp {
namespace {

bool is_onnx(const std::filesystem::path& path) {
  const std::filesystem::path ending = path.extension();
  check_user(ending == ".onnx" || ending == ".gcx", "cannot write '", path.string(), "': wanted a name that ends in .onnx or .gcx");
  return ending == ".onnx";
}

}  // namespace

Trainer::Trainer(const Model& model, const TrainOptions& options)
    : Trainer(driver::make_trainer(model, driver::train_options(options))) {}
Trainer::Trainer(Owned<Impl> impl) : impl_(std::move(impl)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Trainer Trainer::load(const Path& path, const DeviceOptions& options, DeviceRequest device, const ArtifactTrust& trust) {
  return Trainer(Owned(new Impl(path, options, device, trust)));
}

// ---- steps ----

double Trainer::train_step(const Batch& batch) {
  impl_->fill(impl_->step.reader(), batch);
  return step();
}

std::span<std::byte> Trainer::input(std::string_view name) { return impl_->step.reader().input(name); }
const TensorType& Trainer::input_type(std::string_view name) const {
  const runtime::Executable& reader = impl_->step.reader();
  return reader.input_type(reader.input_index(name));
}

std::span<std::byte> Trainer::input(std::size_t index) {
  const std::vector<std::size_t>& data = impl_->step.data();
  check_user(index < data.size(), "input ", index, " of ", data.size());
  return impl_->step.reader().input(data[index]);
}

int Trainer::pending() const { return impl_->pending; }
int Trainer::most_pending() const { return impl_->step.step().runs_in_flight(); }

void Trainer::start() {
  Impl& self = *impl_;
  check_user(self.pending < most_pending(), "start: the losses of ", self.pending, " steps are to be taken first");
  runtime::Executable& step = self.step.step();
  const driver::StepPorts& ports = self.step.ports();
  const std::span<std::byte> rate = step.input(ports.learning_rate);
  store_from_double(DType::f64, rate.data(), 0, self.options.learning_rate);
  if (ports.momentum) {
    check_user(self.momentum.has_value(), "start: this training step takes its momentum from a schedule, and none was set");
    store_from_double(DType::f64, step.input(*ports.momentum).data(), 0, *self.momentum);
  }
  self.fault_age = 0;
  self.naming_index_faults(self.step.reader(), 0, [&] { self.step.run(); });
  ++self.pending;
}

double Trainer::take_loss() {
  Impl& self = *impl_;
  check_user(self.pending > 0, "take_loss: no step was started");
  self.fault_age = --self.pending;
  runtime::Executable& step = self.step.step();
  const driver::StepPorts& ports = self.step.ports();
  const auto scalar = [&](std::size_t output) {
    return load_as_double(step.output_buffer(output).type.dtype, step.output_bytes(output, self.fault_age).data(), 0);
  };
  double loss = 0;
  self.naming_index_faults(self.step.reader(), self.fault_age, [&] {
    self.step.wait(self.fault_age);
    loss = scalar(ports.loss);
  });
  if (ports.skipped) self.skipped = scalar(*ports.skipped) != 0;
  if (ports.gradient_norm) self.gradient_norm = scalar(*ports.gradient_norm);
  if (ports.loss_scale)
    self.loss_scale = LossScaleStatus{
        .scale = scalar(*ports.loss_scale), .skipped = scalar(*ports.skipped) != 0, .dynamic = self.memory->contains("loss_scale")};
  ++self.steps;
  return loss;
}

Optional<LossScaleStatus> Trainer::loss_scale() const { return impl_->loss_scale; }
Optional<bool> Trainer::skipped() const { return impl_->skipped; }
Optional<double> Trainer::gradient_norm() const { return impl_->gradient_norm; }

double Trainer::step() {
  start();
  while (impl_->pending > 1) take_loss();
  return take_loss();
}

std::vector<std::string> Trainer::input_names() const {
  std::vector<std::string> names;
  for (const std::size_t i : impl_->step.data()) names.push_back(impl_->step.reader().input_buffer(i).name);
  return names;
}

std::int64_t Trainer::batch() const {
  for (const std::size_t i : impl_->step.data())
    if (const Shape& shape = impl_->step.reader().input_type(i).shape; !shape.empty())
      return shape[0] * driver::rank_of(impl_->options.device_options).ranks;
  return 0;
}

Optional<std::int64_t> Trainer::classes() const {
  const driver::LabelLimit* label = impl_->label_limit(passes::kLabelArray);
  return label && label->classes > 0 ? Optional(label->classes) : Optional<std::int64_t>();
}
double Trainer::learning_rate() const { return impl_->options.learning_rate; }
void Trainer::set_learning_rate(double rate) {
  check_user(std::isfinite(rate) && rate >= 0, "a learning rate of ", rate, "; wanted a finite number of 0 or more");
  impl_->options.learning_rate = rate;
}
const std::vector<ParameterGroup>& Trainer::groups() const { return impl_->saved.groups; }
bool Trainer::takes_momentum() const { return impl_->step.ports().momentum.has_value(); }
void Trainer::set_momentum(double momentum) {
  check_user(
      takes_momentum(),
      "set_momentum: this training step was compiled for a momentum that stays, that of its optimizer; Optimizer::turned_momentum "
      "compiles one that takes it");
  check_user(momentum >= 0 && momentum < 1, "a momentum of ", momentum, "; wanted a number from 0 to below 1");
  impl_->momentum = momentum;
}
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

bool Trainer::keeps_average() const { return driver::keeps_average(impl_->step.step().program(), impl_->saved.trained); }
Weights Trainer::weights() const { return impl_->weights; }
void Trainer::use(Weights weights) {
  check_user(weights == Weights::trained || keeps_average(), "use: this training step keeps no average of its parameters");
  impl_->weights = weights;
}

void Trainer::prepare_evaluation() { impl_->used_evaluation(); }

std::vector<NamedTensor> Trainer::predict(const Batch& inputs) { return impl_->used_forward().run(inputs); }

Evaluation Trainer::evaluate(const Batch& arrays) {
  Impl& self = *impl_;
  driver::Evaluator& evaluator = self.used_evaluation();
  for (const auto& [name, array] : arrays)
    if (const driver::LabelLimit* limit = self.label_limit(name)) driver::check_labels(array, *limit, self.other_outputs);
  return evaluator.run(arrays);
}

std::vector<NamedTensor> Trainer::gradients(const Batch& batch) {
  Impl& self = *impl_;
  if (!self.gradient) {
    check_user(self.source.has_value(), "gradients need the model itself: a .gcx holds only the compiled training step");
    driver::ModelGraph made = driver::gradient_graph(*self.source, self.options.graph, self.loss, self.options.hooks);
    runtime::Program program =
        driver::compile_graph(std::move(made.graph), self.device->target(), self.options.hooks, self.options.graph.program_limits);
    self.gradient = self.device->load(std::move(program), self.memory);
  }
  self.refresh_copies();
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
  for (const runtime::StateEntry& entry : impl_->states.entries())
    if (entry.role != runtime::StateRole::scratch) names.push_back(entry.name);
  return names;
}

Tensor Trainer::read(std::string_view state) const { return impl_->states.read(state); }

void Trainer::write(std::string_view state, const TensorView& value) {
  const TensorType type = impl_->states.entry(state).type;
  check_user(value.type().shape == type.shape, "state '", state, "' is ", to_string(type), ", the value written to it is ",
             to_string(value.type()));
  Tensor tensor(value.type());
  std::copy(value.bytes().begin(), value.bytes().end(), tensor.bytes().begin());
  impl_->states.write(state,
                      tensor.dtype() == type.dtype ? tensor : runtime::convert(tensor, type.dtype, concat("state '", state, "'")));
}

void Trainer::check_finite() const {
  for (const std::string& name : impl_->saved.weights) {
    if (!impl_->states.contains(name) || !is_float(impl_->states.entry(name).type.dtype)) continue;
    const Tensor value = impl_->states.read(name);
    if (is_finite(value)) continue;
    std::int64_t bad = 0;
    double first = 0;
    for (std::int64_t i = 0; i < value.elements(); ++i)
      if (!std::isfinite(value.at(i)) && bad++ == 0) first = value.at(i);
    throw UserError(concat("parameter '", name, "' is not finite: ", bad, " of ", value.elements(),
                           " elements are NaN or infinite, the first is ", driver::without_sign_of_nan(first)),
                    ExitCode::numeric);
  }
}

std::string Trainer::weights_digest() const {
  std::string summary;
  for (const std::string& name : impl_->saved.weights) {
    if (!impl_->states.contains(name)) continue;
    const Tensor value = impl_->states.read(name);
    summary += concat(name.size(), " ", name, " ", to_string(value.type()), " ", runtime::sha256(value.bytes()), "\n");
  }
  return runtime::sha256(std::as_bytes(std::span(summary)));
}

// ---- files ----

void Trainer::prepare_export() {
  Impl& self = *impl_;
  if (self.source || self.model.source) return;
  check_user(self.saved.original.has_value(), "'", self.artifact_path.string(),
             "' did not come from an ONNX file; write --out as .gcx");
  self.original = driver::open_original(*self.saved.original, self.whole_model, self.artifact_path.string());
  self.model.source = self.original->source;
  if (self.options.keep_model == KeepModel::whole) driver::check_keeps_whole(*self.model.source, self.options.largest_onnx);
  self.model.aliases = self.saved.original->aliases;
  self.model.forms.training = self.saved.original->training_form;
}

void Trainer::set_keep_model(KeepModel keep) {
  if (keep == KeepModel::whole && impl_->model.source) driver::check_keeps_whole(*impl_->model.source, impl_->options.largest_onnx);
  impl_->options.keep_model = keep;
}

void Trainer::set_export_form(ExportForm form) { impl_->options.export_form = form; }
void Trainer::set_export_preprocessing(bool prepend) { impl_->options.export_preprocessing = prepend; }
const std::vector<InputForm>& Trainer::input_forms() const { return impl_->saved.input_forms; }
const std::string& Trainer::preprocessing() const { return impl_->saved.preprocessing; }
const std::string& Trainer::number_names() const { return impl_->saved.number_names; }

void Trainer::save(const Path& path) { save(path, Weights::trained); }

void Trainer::save(const Path& path, Weights which) {
  Impl& self = *impl_;
  self.written_beside.clear();
  check_user(which == Weights::trained || keeps_average(), "cannot write '", path.string(),
             "': this training step keeps no average of its parameters");
  if (!is_onnx(path.string())) {
    check_user(which == Weights::trained, "'", path.string(),
               "': a .gcx holds both; averaged parameters alone are written as .onnx");
    return runtime::write_artifact(path.string(), self.artifact());
  }
  prepare_export();
  check_user(self.model.source != nullptr, "'", path.string(), "': the model did not come from an ONNX file; save it as .gcx");
  const auto is_trained = [&](const std::string& name) { return std::ranges::count(self.saved.trained, name) > 0; };
  std::map<std::string, Tensor> weights;
  for (const std::string& name : self.saved.weights)
    if (self.states.contains(name))
      weights.emplace(name, self.states.read(which == Weights::averaged && is_trained(name) ? passes::average_name(name) : name));
  if (self.saved.lora) driver::merge_adapters(*self.saved.lora, weights);
  driver::OnnxOutput output{
      .form = self.options.export_form, .number_names = self.saved.number_names, .largest = self.options.largest_onnx};
  if (self.options.export_preprocessing) output.input_forms = self.saved.input_forms;
  self.written_beside = driver::write_onnx(path.string(), self.model, weights, output).string();
}

const std::string& Trainer::loss_output() const { return impl_->loss.output; }
const std::vector<std::string>& Trainer::notes() const { return impl_->model.repairs; }
std::string Trainer::device() const { return concat(impl_->device->description(), " (", impl_->device_reason, ")"); }

Trainer compile(const Model& model, const TrainOptions& options) { return Trainer(model, options); }

}  // namespace gcomp
