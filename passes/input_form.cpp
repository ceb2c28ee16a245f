#include "passes/input_form.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/builder.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::string form_origin(const std::string& input) { return concat("the form of input '", input, "'"); }

std::size_t find_input(const Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i]->name == name) return i;
    names.push_back(graph.inputs()[i]->name);
  }
  throw UserError(concat("the model has no input '", name, "', which is to be fed as bytes, it has ", listing(names),
                         did_you_mean(name, names)));
}

std::int64_t axis_in(const InputForm& form, const TensorType& type) {
  const std::int64_t axis = form.axis < 0 ? form.axis + type.rank() : form.axis;
  const auto wanted = static_cast<std::int64_t>(form.mean.size());
  check_user(axis >= 0 && axis < type.rank() && type.shape[static_cast<std::size_t>(axis)] == wanted, "input '", form.input,
             "' is ", to_string(type), ", and mean and std have ", wanted, " numbers along its dimension ", form.axis);
  return axis;
}

/// One number for all, or one for each place along the axis.
Var spread(Builder& b, const InputForm& form, const std::vector<double>& numbers, const TensorType& type) {
  if (numbers.size() == 1) return b.full(type, numbers[0]);
  const std::int64_t axis = axis_in(form, type);
  const auto size = static_cast<std::int64_t>(numbers.size());
  return b.broadcast(b.constant(Tensor::of(type.dtype, {size}, numbers)), type.shape, {axis});
}

void check_form(const InputForm& form, const TensorType& type) {
  check_user(is_float(type.dtype), "input '", form.input, "' is ", to_string(type), ": only an input of floats can have a form");
  check_user(std::isfinite(form.divisor) && form.divisor > 0, "the divisor of input '", form.input, "' is ", form.divisor);
  check_user(form.mean.size() == form.std.size(), "input '", form.input, "' has ", form.mean.size(), " means and ", form.std.size(),
             " deviations");
  for (std::size_t i = 0; i < form.mean.size(); ++i)
    check_user(std::isfinite(form.mean[i]) && std::isfinite(form.std[i]) && form.std[i] > 0, "input '", form.input,
               "': mean and std are ", form.mean[i], " and ", form.std[i]);
}

void apply_input_form(Graph& graph, const InputForm& form) {
  const std::size_t place = find_input(graph, form.input);
  Value* floats = graph.inputs()[place];
  const TensorType type = floats->type;
  check_form(form, type);
  if (form.mean.size() > 1) axis_in(form, type);
  Value* raw = graph.add_input({form.dtype, type.shape}, form.input, graph.input_role(place));
  graph.take_name(floats, raw);
  graph.inputs().pop_back();
  graph.inputs()[place] = raw;

  std::vector<std::unique_ptr<Node>> readers = graph.take_nodes();
  Builder b(graph, form_origin(form.input));
  Var x = b.wrap(raw);
  if (form.dtype != type.dtype) x = b.cast(x, type.dtype);
  if (form.divisor != 1) x = x / b.like(x, form.divisor);
  if (!form.mean.empty()) x = (x - spread(b, form, form.mean, type)) / spread(b, form, form.std, type);
  for (std::unique_ptr<Node>& node : readers) graph.append(std::move(node));
  if (x.value != raw) graph.replace_uses({{floats, x.value}});
}

}  // namespace

void apply_input_forms(Graph& graph, std::span<const InputForm> forms) {
  for (std::size_t i = 0; i < forms.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) check_user(forms[i].input != forms[j].input, "input '", forms[i].input, "' has two forms");
    apply_input_form(graph, forms[i]);
  }
}

Value* seen_input(const Graph& graph, Value* input) {
  const std::string origin = form_origin(input->name);
  Value* seen = input;
  for (const std::unique_ptr<Node>& node : graph.nodes())
    if (node->origin.str() == origin) seen = node->results[0];
  return seen;
}

}  // namespace gcomp::passes
