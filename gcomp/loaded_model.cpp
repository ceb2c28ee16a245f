#include "gcomp/loaded_model.h"

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "gcomp/driver/forward.h"
#include "gcomp/driver/saved_model.h"
#include "gcomp/driver/step_programs.h"
#include "ir/base/nearest.h"
#include "runtime/artifact.h"
#include "runtime/device.h"

namespace gcomp {

struct LoadedModel::Impl {
  runtime::Artifact artifact;  // weights are in `states`
  driver::SavedModel saved;
  std::unique_ptr<runtime::Device> device;
  std::shared_ptr<runtime::StateMemory> states;
  std::unique_ptr<driver::Forward> forward;
  driver::StepPrograms step;

  void fill_step(const Batch& batch);
  std::optional<driver::IndexFault> find_fault() const;
};

LoadedModel::LoadedModel(const Path& path, const DeviceOptions& options, DeviceRequest device, const ArtifactTrust& trust)
    : impl_(new Impl) {
  Impl& self = *impl_;
  self.artifact = runtime::read_artifact(path.string(), trust);
  self.saved = driver::saved_model(self.artifact, path.string());
  const runtime::Program* forward = driver::find_program(self.artifact, driver::kForwardProgram);
  check_user(forward, "'", path.string(), "' holds no forward pass");
  driver::require_device(device, forward->target, path.string());
  self.device = runtime::open_device(forward->target.kind, driver::with_choices(options, self.saved));
  self.states = self.device->allocate_states();
  const auto load = [&](const runtime::Program& program) {
    return self.device->load(program, self.states, driver::kernel_binary(self.artifact, program));
  };
  self.forward =
      std::make_unique<driver::Forward>(load(*forward), self.saved.outputs, self.saved.limits, self.saved.row_dependence);
  if (std::vector<driver::StepProgram> programs = driver::step_programs(self.artifact); !programs.empty()) try {
      self.step = driver::StepPrograms(*self.device, self.states, std::move(programs), self.saved.micro_batches);
    } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what()), error.code()); }
  for (const std::string& note : driver::note_choices(self.saved, options, *self.device, path.string()))
    if (options.log) options.log(note);
  for (const auto& [name, tensor] : std::exchange(self.artifact.weights, {})) self.states->write(name, tensor);
  const std::vector<std::string> missing = self.states->unwritten();
  check_user(missing.empty(), "'", path.string(), "' lacks the states ", listing(missing));
}

LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;
LoadedModel& LoadedModel::operator=(LoadedModel&&) noexcept = default;
LoadedModel::~LoadedModel() = default;

std::vector<std::string> LoadedModel::input_names() const {
  std::vector<std::string> names;
  const runtime::Executable& forward = impl_->forward->executable();
  for (std::size_t i = 0; i < forward.program().inputs.size(); ++i) names.push_back(forward.input_buffer(i).name);
  return names;
}

const std::vector<InputForm>& LoadedModel::input_forms() const { return impl_->saved.input_forms; }
const std::string& LoadedModel::preprocessing() const { return impl_->saved.preprocessing; }
const std::string& LoadedModel::number_names() const { return impl_->saved.number_names; }

std::vector<NamedTensor> LoadedModel::predict(const Batch& inputs) { return impl_->forward->run(inputs); }

bool LoadedModel::trains() const { return static_cast<bool>(impl_->step); }

/// Copies the arrays and the learning rate into the step's inputs.
void LoadedModel::Impl::fill_step(const Batch& batch) {
  runtime::Executable& reader = step.reader();
  for (const std::size_t i : step.data()) {
    const std::string& name = reader.input_buffer(i).name;
    const TensorType& type = reader.input_type(i);
    const TensorView& array = driver::find_array(batch, name);
    check_user(array.type().shape == type.shape, "array '", name, "' is ", to_string(array.type()), ", wanted ", to_string(type));
    for (const driver::LabelLimit& limit : saved.labels)
      if (limit.array == name)
        if (const auto fault = driver::find_label_fault(array, limit)) throw UserError(to_string(*fault, limit));
    driver::copy_rows(name, array, 0, type.shape.empty() ? 1 : type.shape[0], type, reader.input(i));
  }
  store_from_double(DType::f64, step.step().input(step.ports().learning_rate).data(), 0, saved.learning_rate);
}

/// The first index of the last step that was out of range.
std::optional<driver::IndexFault> LoadedModel::Impl::find_fault() const {
  for (const driver::IndexLimit& limit : saved.limits) {
    runtime::Executable& reader = step.reader();
    const std::size_t input = reader.input_index(limit.input);
    if (auto fault = driver::find_index_fault(limit, reader.input_type(input), reader.input_of_run(input, 0))) return fault;
  }
  return std::nullopt;
}

double LoadedModel::train_step(const Batch& batch) {
  Impl& self = *impl_;
  check_user(trains(), "the model was compiled without a training step; make one with gcomp compile --train");
  self.fill_step(batch);
  try {
    self.step.run();
    self.step.wait(0);
    runtime::Executable& step = self.step.step();
    const std::size_t loss = self.step.ports().loss;
    return load_as_double(step.output_buffer(loss).type.dtype, step.output_bytes(loss).data(), 0);
  } catch (const UserError&) {
    if (const auto fault = self.find_fault()) throw UserError(to_string(*fault));
    throw;
  }
}

double LoadedModel::learning_rate() const { return impl_->saved.learning_rate; }
void LoadedModel::set_learning_rate(double rate) {
  check_user(std::isfinite(rate) && rate >= 0, "a learning rate of ", rate, "; wanted a finite number of 0 or more");
  impl_->saved.learning_rate = rate;
}

std::vector<std::string> LoadedModel::states() const {
  std::vector<std::string> names;
  for (const runtime::StateEntry& entry : impl_->states->entries())
    if (entry.role != runtime::StateRole::scratch) names.push_back(entry.name);
  return names;
}

Tensor LoadedModel::read(std::string_view state) const { return impl_->states->read(state); }
void LoadedModel::write(std::string_view state, const Tensor& value) { impl_->states->write(state, value); }

void LoadedModel::save(const Path& path) const {
  runtime::Artifact artifact = impl_->artifact;
  for (const std::string& name : states()) artifact.weights.emplace(name, read(name));
  driver::store(impl_->saved, artifact);
  runtime::write_artifact(path.string(), artifact);
}

std::string LoadedModel::device() const { return impl_->device->description(); }

}  // namespace gcomp
