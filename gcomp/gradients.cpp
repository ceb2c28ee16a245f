#include "gcomp/gradients.h"

#include <algorithm>

#include "gcomp/driver/graph_index_limits.h"

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

Gradients::Gradients(const Model& model, const GradientOptions& options) {
  const runtime::DeviceChoice choice = runtime::choose_device(options.device, options.device_options);
  device_reason_ = choice.reason;
  device_ = runtime::open_device(choice, options.device_options);
  GraphOptions graph = options.graph;
  if (!graph.precision) graph.precision = DType::f32;
  graph.target = device_->target();
  ModelGraph made = gradient_graph(model, graph, options.loss, options.hooks);
  std::vector<IndexLimit> limits = index_limits(made.graph);
  std::vector<std::string> names = trained_names(made.model);
  check_user(std::find(names.begin(), names.end(), "loss") == names.end(),
             "a trained parameter is called 'loss', as the loss is among the results; freeze it or give it another name");
  names.insert(names.begin(), "loss");
  runtime::Program program = compile_graph(std::move(made.graph), device_->target(), options.hooks, graph.program_limits);
  const std::shared_ptr<runtime::StateMemory> states = device_->allocate_states();
  forward_ = std::make_unique<Forward>(device_->load(std::move(program), states), std::move(names), std::move(limits));
  for (const std::string& name : states->unwritten()) states->write(name, made.model.weights.at(name));
  model_ = std::move(made.model);
  model_.weights.clear();
  target_ = std::move(made.target);
}

std::string Gradients::device() const { return concat(device_->description(), " (", device_reason_, ")"); }

std::vector<NamedTensor> Gradients::run(const Batch& batch) {
  if (target_) check_labels(find_array(batch, "label"), target_->output.classes, target_->others);
  std::vector<NamedTensor> results = forward_->run(batch);
  std::vector<NamedTensor> sums;
  std::size_t next = 1;
  for (const frontend::Parameter& parameter : model_.parameters) {
    if (!parameter.trained) continue;
    if (parameter.initializer != parameter.name) accumulate(sums, parameter.initializer, results[next].second);
    ++next;
  }
  for (NamedTensor& sum : sums) {
    const bool taken = std::any_of(results.begin(), results.end(), [&](const NamedTensor& r) { return r.first == sum.first; });
    if (!taken) results.push_back(std::move(sum));
  }
  for (const frontend::Alias& alias : model_.aliases) {
    if (alias.kind != frontend::Alias::Kind::tied) continue;
    const auto shared = std::find_if(results.begin(), results.end(), [&](const NamedTensor& r) { return r.first == alias.state; });
    const auto tied = std::find_if(model_.parameters.begin(), model_.parameters.end(),
                                   [&](const frontend::Parameter& p) { return p.name == alias.initializer; });
    if (shared == results.end() || tied == model_.parameters.end()) continue;
    Tensor gradient = as_tied(alias, shared->second, tied->type.shape);
    results.emplace_back(alias.initializer, std::move(gradient));
  }
  return results;
}

}  // namespace gcomp
