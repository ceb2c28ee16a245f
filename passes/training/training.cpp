#include "passes/training/training.h"

#include <algorithm>
#include <charconv>

#include "ir/base/nearest.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::pair<std::string_view, LossKind> kLosses[] = {
    {"cross_entropy", LossKind::cross_entropy},     {"mse", LossKind::mse},      {"l1", LossKind::l1}, {"bce", LossKind::bce},
    {"bce_with_logits", LossKind::bce_with_logits}, {"output", LossKind::output}};
/// Looks a name up in a table; an unknown one is a usage error with the nearest name.
template <class T, std::size_t N>
T lookup(const std::pair<std::string_view, T> (&table)[N], std::string_view what, std::string_view name) {
  std::string known;
  std::vector<std::string> names;
  for (const auto& [key, value] : table) {
    if (key == name) return value;
    names.emplace_back(key);
    known += (known.empty() ? "" : ", ") + std::string(key);
  }
  std::string message = concat("unknown ", what, " '", name, "', wanted one of: ", known);
  if (auto near = nearest(name, names)) message += concat("; did you mean '", *near, "'?");
  throw UserError(message, ExitCode::usage);
}

/// The named one, or the first of floats.
Value* observed_output(const Graph& graph, const std::string& name) {
  for (Value* output : graph.outputs())
    if (name.empty() ? is_float(output->type.dtype) : output->name == name) return output;
  if (name.empty()) throw UserError(concat("graph @", graph.name(), " has no floating-point output to take a loss of"));
  throw UserError(concat("graph @", graph.name(), " has no output '", name, "'"), ExitCode::usage);
}

Shape without_axis(Shape shape, std::int64_t axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

std::int64_t class_axis(const LossSpec& loss, const TensorType& output, const std::optional<TensorType>& found) {
  const std::int64_t last = output.rank() - 1;
  check_user(output.rank() >= 1, "cross_entropy: the output is ", to_string(output), ", wanted a class axis");
  if (loss.axis) {
    const std::int64_t axis = *loss.axis < 0 ? *loss.axis + output.rank() : *loss.axis;
    check_user(axis >= 0 && axis <= last, "cross_entropy:axis=", *loss.axis, " is out of range for the output ", to_string(output));
    return axis;
  }
  if (last < 2 || !found) return last;
  const bool fits_last = found->shape == without_axis(output.shape, last),
             fits_first = found->shape == without_axis(output.shape, 1);
  const std::string ask = "; say which axis holds the classes with --loss cross_entropy:axis=N";
  check_user(!(fits_last && fits_first), "cross_entropy: label ", to_string(*found), " fits the output ", to_string(output),
             " with classes in axis 1 and in axis ", last, ask);
  check_user(fits_last || fits_first, "cross_entropy: label is ", to_string(*found), ", the output ", to_string(output),
             "; wanted [", to_string(without_axis(output.shape, last)), "] or [", to_string(without_axis(output.shape, 1)), "]",
             ask);
  return fits_last ? last : 1;
}

Var mean_of_all(Var x) { return x.builder->mean(x, ops::last_axes(x.rank(), static_cast<std::size_t>(x.rank()))); }

Var loss_of(Builder& b, const LossSpec& loss, Var output, Var label, std::int64_t axis) {
  switch (loss.kind) {
    case LossKind::cross_entropy: return b.apply(ops::kCrossEntropy, {output, label}, {{"axis", axis}});
    case LossKind::mse: return mean_of_all((output - label) * (output - label));
    case LossKind::l1: return mean_of_all(ops::kAbs(output - label));
    case LossKind::bce: return mean_of_all(ops::kBinaryCrossEntropy(output, label));
    case LossKind::bce_with_logits: return mean_of_all(ops::kSoftplus(output) - output * label);
    case LossKind::output: return output;
  }
  return {};
}

/// The loss's own input, called `label` whatever the model calls what its nodes make: that gives the name up.
Var label_input(Builder& b, const TensorType& type) {
  Graph& graph = b.graph();
  Value* taken = nullptr;
  for (const auto& node : graph.nodes())
    for (Value* result : node->results)
      if (result->name == kLabelInput) taken = result;
  Var label = b.input(type, std::string(kLabelInput), Role::label);
  if (taken) graph.take_name(taken, label.value);
  return label;
}

/// The loss becomes the only output.
void show_alone(Graph& graph, Value* loss) {
  graph.clear_outputs();
  graph.add_output(loss, Role::loss);
}

}  // namespace

LossSpec parse_loss(std::string_view text, std::string_view output) {
  const std::size_t colon = text.find(':');
  LossSpec spec;
  spec.kind = lookup(kLosses, "loss", text.substr(0, colon));
  const std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (spec.kind == LossKind::output) {
    if (rest.empty()) throw UserError("loss 'output' needs the name of a graph output: output:NAME", ExitCode::usage);
    if (!output.empty())
      throw UserError(concat("--output ", output, ": the loss '", text, "' names its output itself"), ExitCode::usage);
    spec.output = rest;
    return spec;
  }
  spec.output = output;
  if (!rest.empty()) {
    std::int64_t axis = 0;
    const std::string_view prefix = "axis=";
    const bool ok =
        spec.kind == LossKind::cross_entropy && rest.substr(0, prefix.size()) == prefix &&
        std::from_chars(rest.data() + prefix.size(), rest.data() + rest.size(), axis).ptr == rest.data() + rest.size() &&
        rest.size() > prefix.size();
    if (!ok)
      throw UserError(concat("loss '", text, "': found option '", rest, "', wanted axis=N (cross_entropy only)"), ExitCode::usage);
    spec.axis = axis;
  }
  return spec;
}

std::optional<LabelSpec> label_of(const LossSpec& loss, const TensorType& output, const std::optional<TensorType>& found) {
  switch (loss.kind) {
    case LossKind::output: return std::nullopt;
    case LossKind::cross_entropy: {
      const std::int64_t axis = class_axis(loss, output, found);
      const TensorType wanted{DType::i64, without_axis(output.shape, axis)};
      check_user(!found || found->shape == wanted.shape, "cross_entropy: label is ", found ? to_string(*found) : "",
                 ", the output ", to_string(output), "; wanted ", to_string(wanted));
      return LabelSpec{wanted, axis};
    }
    case LossKind::mse:
    case LossKind::l1:
    case LossKind::bce:
    case LossKind::bce_with_logits:
      check_user(!found || found->shape == output.shape, "label is ", found ? to_string(*found) : "",
                 ", wanted the output's shape: ", to_string(output));
      return LabelSpec{output, -1};
  }
  return std::nullopt;
}

Value* attach_loss(Graph& graph, const LossSpec& loss, const std::optional<TensorType>& label) {
  Builder b(graph, "loss");
  if (loss.kind == LossKind::output) {
    std::vector<std::string> names;
    for (Value* output : graph.outputs()) names.push_back(output->name);
    const auto found = std::find(names.begin(), names.end(), loss.output);
    if (found == names.end())
      throw UserError(concat("loss output:", loss.output, ": the model has no such output; there is ", listing(names),
                             did_you_mean(loss.output, names)),
                      ExitCode::usage);
    const auto position = static_cast<std::size_t>(found - names.begin());
    Value* output = graph.outputs()[position];
    if (!output->type.shape.empty() || !is_float(output->type.dtype))
      throw UserError(concat("loss output:", loss.output, ": that output is ", to_string(output->type),
                             ", wanted a floating-point scalar; a loss that takes it is named with --output ", loss.output),
                      ExitCode::usage);
    graph.set_output_role(position, Role::loss);
    return output;
  }
  Value* output = observed_output(graph, loss.output);
  const LabelSpec spec = *label_of(loss, output->type, label);
  Var value = loss_of(b, loss, b.wrap(output), label_input(b, spec.type), spec.axis);
  graph.rename(value.value, "loss");
  graph.add_output(value.value, Role::loss);
  return value.value;
}

std::vector<Value*> states_named(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Value*> values;
  for (const std::string& name : names) {
    auto it = std::find_if(graph.states().begin(), graph.states().end(), [&](const State& s) { return s.value->name == name; });
    check_internal(it != graph.states().end(), "no state named '", name, "'");
    values.push_back(it->value);
  }
  return values;
}

std::vector<Value*> counters_of(const Graph& graph) {
  std::vector<Value*> values;
  for (const State& state : graph.states())
    if (state.role == StateRole::counter) values.push_back(state.value);
  return values;
}

void show_loss(Graph& graph, Value* loss, const StepReport& report) {
  show_alone(graph, loss);
  if (report.scale) graph.add_output(report.scale, Role::loss_scale);
  if (report.skipped) graph.add_output(report.skipped, Role::skipped);
  if (report.gradient_norm) graph.add_output(report.gradient_norm, Role::gradient_norm);
  graph.set_name("train_step");
  graph.remove_dead();
}

void show_gradients(Graph& graph, Value* loss, const std::vector<Value*>& gradients) {
  show_alone(graph, loss);
  for (Value* gradient : gradients) graph.add_output(gradient, Role::gradient);
  graph.set_name("gradients");
  graph.remove_updates();
  graph.remove_dead();
}

void make_training_step(Graph& graph, const LossSpec& loss, const OptimizerSpec& optimizer, const std::vector<std::string>& trained,
                        const std::optional<TensorType>& label, const std::optional<LossScaling>& scaling,
                        const StepOptions& step) {
  const TrainingRequest request{loss, optimizer, trained, label, scaling, step};
  prepare(graph, {}, &request);
}

}  // namespace gcomp::passes
