#include "gcomp/gradients.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "gcomp/driver/forward.h"
#include "gcomp/driver/gradient_run.h"
#include "gcomp/driver/graph_index_limits.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/options.h"
#include "runtime/device.h"

namespace gcomp {
namespace {

/// Adds `part` to the array of that name, or appends it.
void accumulate(std::vector<NamedTensor>& sums, const std::string& name, const Tensor& part) {
  const auto known = std::find_if(sums.begin(), sums.end(), [&](const NamedTensor& sum) { return sum.first == name; });
  if (known == sums.end()) {
    sums.emplace_back(name, part);
    return;
  }
  for (std::int64_t i = 0; i < part.elements(); ++i) known->second.set(i, known->second.at(i) + part.at(i));
}

/// The gradient of a tied initializer: the shared parameter's, as the file holds it.
Tensor as_tied(const frontend::Alias& alias, const Tensor& gradient, const Shape& shape) {
  if (!alias.transposed) return Tensor(gradient).reshaped(shape);
  Tensor result(gradient.dtype(), shape);
  for (std::int64_t i = 0; i < shape[0]; ++i)
    for (std::int64_t j = 0; j < shape[1]; ++j) result.set(i * shape[1] + j, gradient.at(j * shape[0] + i));
  return result;
}

}  // namespace

struct Gradients::Impl {
  frontend::ImportedModel model;
  driver::LossTarget target;
  std::string device_reason;
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<driver::Forward> forward;

  Impl(const Model& source, const driver::GradientOptions& options);
};

Gradients::Impl::Impl(const Model& source, const driver::GradientOptions& options) {
  const runtime::DeviceChoice choice = runtime::choose_device(options.device, options.device_options);
  device_reason = choice.reason;
  device = runtime::open_device(choice, options.device_options);
  driver::GraphOptions graph = options.graph;
  if (!graph.precision) graph.precision = DType::f32;
  graph.target = device->target();
  driver::ModelGraph made = driver::gradient_graph(source, graph, options.loss, options.hooks);
  std::vector<driver::IndexLimit> limits = driver::index_limits(made.graph);
  std::vector<std::string> names = driver::trained_names(made.model);
  check_user(std::find(names.begin(), names.end(), "loss") == names.end(),
             "a trained parameter is called 'loss', as the loss is among the results; freeze it or give it another name");
  names.insert(names.begin(), "loss");
  runtime::Program program = driver::compile_graph(std::move(made.graph), device->target(), options.hooks, graph.program_limits);
  const std::shared_ptr<runtime::StateMemory> states = device->allocate_states();
  forward = std::make_unique<driver::Forward>(device->load(std::move(program), states), std::move(names), std::move(limits));
  for (const std::string& name : states->unwritten()) states->write(name, made.model.weights.at(name));
  model = std::move(made.model);
  model.weights.clear();
  target = std::move(made.target);
}

Gradients::Gradients(const Model& model, const GradientOptions& options)
    : Gradients(driver::make_gradients(model, {.loss = driver::read_loss(options.loss, options.output),
                                               .graph = driver::graph_options(options.graph),
                                               .device = options.device,
                                               .device_options = options.device_options,
                                               .hooks = driver::compile_hooks(options.hooks)})) {}
Gradients::Gradients(Owned<Impl> impl) : impl_(std::move(impl)) {}
Gradients::Gradients(Gradients&&) noexcept = default;
Gradients& Gradients::operator=(Gradients&&) noexcept = default;
Gradients::~Gradients() = default;

std::string Gradients::loss_output() const { return impl_->target.output; }
std::string Gradients::device() const { return concat(impl_->device->description(), " (", impl_->device_reason, ")"); }

std::vector<NamedTensor> Gradients::run(const Batch& batch) {
  for (const passes::LossArray& array : impl_->target.bound.arrays)
    driver::check_labels(driver::find_array(batch, array.name), {array.name, array.classes, array.ignored}, impl_->target.others);
  std::vector<NamedTensor> results = impl_->forward->run(batch);
  std::vector<NamedTensor> sums;
  std::size_t next = 1;
  for (const frontend::Parameter& parameter : impl_->model.parameters) {
    if (!parameter.trained) continue;
    if (parameter.initializer != parameter.name) accumulate(sums, parameter.initializer, results[next].second);
    ++next;
  }
  for (NamedTensor& sum : sums) {
    const bool taken = std::any_of(results.begin(), results.end(), [&](const NamedTensor& r) { return r.first == sum.first; });
    if (!taken) results.push_back(std::move(sum));
  }
  for (const frontend::Alias& alias : impl_->model.aliases) {
    if (alias.kind != frontend::Alias::Kind::tied) continue;
    const auto shared = std::find_if(results.begin(), results.end(), [&](const NamedTensor& r) { return r.first == alias.state; });
    const auto tied = std::find_if(impl_->model.parameters.begin(), impl_->model.parameters.end(),
                                   [&](const frontend::Parameter& p) { return p.name == alias.initializer; });
    if (shared == results.end() || tied == impl_->model.parameters.end()) continue;
    Tensor gradient = as_tied(alias, shared->second, tied->type.shape);
    results.emplace_back(alias.initializer, std::move(gradient));
  }
  return results;
}

namespace driver {

Gradients make_gradients(const Model& model, const GradientOptions& options) {
  return Gradients(Owned(new Gradients::Impl(model, options)));
}

const frontend::ImportedModel& imported_model(const Gradients& gradients) { return gradients.impl().model; }

}  // namespace driver
}  // namespace gcomp
