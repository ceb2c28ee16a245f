#include "gcomp/driver/loss_output.h"

#include <algorithm>

#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::driver {
namespace {

/// The position among the outputs.
std::size_t find_output(const frontend::ImportedModel& model, const passes::LossSpec& loss) {
  const std::vector<TensorType>& types = model.output_types;
  if (loss.output.empty()) {
    const auto first = std::ranges::find_if(types, [](const TensorType& type) { return is_float(type.dtype); });
    check_user(first != types.end(), "the model has no floating-point output to take a loss of");
    return static_cast<std::size_t>(first - types.begin());
  }
  const auto named = std::ranges::find(model.outputs, loss.output);
  if (named == model.outputs.end())
    throw UserError(concat("the model has no output '", loss.output, "', it has ", listing(model.outputs),
                           did_you_mean(loss.output, model.outputs)),
                    ExitCode::usage);
  const auto at = static_cast<std::size_t>(named - model.outputs.begin());
  if (!is_float(types[at].dtype))
    throw UserError(concat("output '", loss.output, "' is ", to_string(types[at]), ", a loss needs floats"), ExitCode::usage);
  return at;
}

LossOutput describe(const frontend::ImportedModel& model, std::size_t at, const passes::LabelSpec& label, passes::LossKind kind) {
  const TensorType& type = model.output_types[at];
  const bool classes = kind == passes::LossKind::cross_entropy;
  return {model.outputs[at], type, classes ? type.shape[static_cast<std::size_t>(label.axis)] : 0};
}

/// The outputs of floats but one that labels of this type fit.
std::vector<LossOutput> fitting_outputs(const frontend::ImportedModel& model, const passes::LossSpec& loss,
                                        const std::optional<TensorType>& found, std::size_t but) {
  std::vector<LossOutput> fitting;
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    if (i == but || !is_float(model.output_types[i].dtype)) continue;
    try {
      fitting.push_back(describe(model, i, *passes::label_of(loss, model.output_types[i], found), loss.kind));
    } catch (const UserError&) {}  // it does not fit
  }
  return fitting;
}

}  // namespace

LossTarget loss_target(const frontend::ImportedModel& model, const passes::LossSpec& loss, const std::optional<TensorType>& found) {
  const std::size_t at = find_output(model, loss);
  std::vector<LossOutput> others = fitting_outputs(model, loss, found, at);
  try {
    const passes::LabelSpec label = *passes::label_of(loss, model.output_types[at], found);
    return {describe(model, at, label, loss.kind), label, std::move(others)};
  } catch (const UserError& error) {
    const std::string which = model.outputs.size() > 1 ? concat("output '", model.outputs[at], "': ") : "";
    std::string rest = suggest_outputs(others);
    for (std::size_t i = 0; others.empty() && i < model.outputs.size(); ++i)
      if (i != at)
        rest +=
            concat(rest.empty() ? "; the model has also " : ", ", "'", model.outputs[i], "' ", to_string(model.output_types[i]));
    throw UserError(concat(which, error.what(), rest), error.code());
  }
}

std::string suggest_outputs(std::span<const LossOutput> fitting) {
  std::string text;
  for (const LossOutput& output : fitting)
    text += concat(text.empty() ? "; the labels fit " : ", or ", "output '", output.name, "', ", to_string(output.type),
                   ": --output ", output.name);
  return text;
}

void check_labels(const TensorView& labels, std::int64_t classes, std::span<const LossOutput> others) {
  const std::optional<LabelFault> fault = find_label_fault(labels, classes);
  if (fault) throw UserError(concat(to_string(*fault, classes), suggest_outputs(outputs_with_class(others, fault->largest))));
}

std::vector<LossOutput> outputs_with_class(std::span<const LossOutput> outputs, std::int64_t label) {
  std::vector<LossOutput> with;
  std::ranges::copy_if(outputs, std::back_inserter(with), [&](const LossOutput& output) { return label < output.classes; });
  return with;
}

}  // namespace gcomp::driver
