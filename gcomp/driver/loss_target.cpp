#include "gcomp/driver/loss_target.h"

#include <algorithm>
#include <optional>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "passes/input_form.h"

namespace gcomp::driver {
namespace {

passes::LossScope scope_of(const frontend::ImportedModel& model, const ir::Graph& graph,
                           const std::map<std::string, TensorType>& arrays) {
  passes::LossScope scope{.outputs = {}, .inputs = {}, .arrays = arrays};
  for (std::size_t i = 0; i < model.outputs.size(); ++i) scope.outputs.push_back({model.outputs[i], model.output_types[i]});
  for (ir::Value* input : graph.inputs()) scope.inputs.push_back({input->name, passes::seen_input(graph, input)->type});
  return scope;
}

/// Of the array `label`.
std::int64_t label_classes(const passes::BoundLoss& bound) {
  const auto label = std::ranges::find(bound.arrays, passes::kLabelArray, &passes::LossArray::name);
  return label == bound.arrays.end() ? 0 : label->classes;
}

/// The outputs of floats but `used` that labels of this type fit too.
std::vector<LossOutput> fitting_outputs(const passes::LossSpec& loss, const passes::LossScope& scope, const std::string& used) {
  std::vector<LossOutput> fitting;
  passes::LossSpec other = loss;
  for (const passes::NamedType& output : scope.outputs) {
    if (output.name == used || !is_float(output.type.dtype)) continue;
    other.output = output.name;
    try {
      fitting.push_back({output.name, output.type, label_classes(passes::bind_loss(other, scope))});
    } catch (const UserError&) {}  // it does not fit
  }
  return fitting;
}

std::string default_output(const passes::LossSpec& loss, const passes::LossScope& scope) {
  if (!loss.output.empty()) return loss.output;
  const auto first = std::ranges::find_if(scope.outputs, [](const passes::NamedType& o) { return is_float(o.type.dtype); });
  return first == scope.outputs.end() ? "" : first->name;
}

}  // namespace

LossTarget loss_target(const frontend::ImportedModel& model, const ir::Graph& graph, const passes::LossSpec& loss,
                       const std::map<std::string, TensorType>& arrays) {
  const passes::LossScope scope = scope_of(model, graph, arrays);
  if (!loss.has_default_arguments()) return {passes::bind_loss(loss, scope), "", {}};
  const std::string used = default_output(loss, scope);
  std::vector<LossOutput> others = fitting_outputs(loss, scope, used);
  try {
    return {passes::bind_loss(loss, scope), used, std::move(others)};
  } catch (const UserError& error) {
    const bool names_one = std::ranges::find(model.outputs, used) != model.outputs.end();
    if (model.outputs.size() < 2 || !names_one || error.code() == ExitCode::usage) throw;
    std::string rest = suggest_outputs(others);
    for (const passes::NamedType& output : scope.outputs)
      if (others.empty() && output.name != used)
        rest += concat(rest.empty() ? "; the model has also " : ", ", "'", output.name, "' ", to_string(output.type));
    throw UserError(concat("output '", used, "': ", error.what(), rest), error.code());
  }
}

std::string suggest_outputs(std::span<const LossOutput> fitting) {
  std::string text;
  for (const LossOutput& output : fitting)
    text += concat(text.empty() ? "; the labels fit " : ", or ", "output '", output.name, "', ", to_string(output.type),
                   ": --output ", output.name);
  return text;
}

void check_labels(const TensorView& labels, const LabelLimit& limit, std::span<const LossOutput> others) {
  const std::optional<LabelFault> fault = find_label_fault(labels, limit);
  if (fault) throw UserError(concat(to_string(*fault, limit), suggest_outputs(outputs_with_class(others, fault->largest))));
}

std::vector<LossOutput> outputs_with_class(std::span<const LossOutput> outputs, std::int64_t label) {
  std::vector<LossOutput> with;
  std::ranges::copy_if(outputs, std::back_inserter(with), [&](const LossOutput& output) { return label < output.classes; });
  return with;
}

}  // namespace gcomp::driver
