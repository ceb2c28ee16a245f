// Models written in C++ as graphs: inputs, outputs, parameters and their initial values.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "frontend/layers/impl.h"
#include "ir/base/named_draws.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

using frontend::ImportOptions;
using frontend::Parameter;

/// Whether `text` matches a pattern of literal characters, `*` and `?`.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (std::size_t i = 0; i <= text.size(); ++i)
      if (matches(pattern.substr(1), text.substr(i))) return true;
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && matches(pattern.substr(1), text.substr(1));
}

}  // namespace

bool Layers::training() const { return impl_.options.training || impl_.options.training_form; }

Var Layers::input(const std::string& name, DType dtype, Shape shape) {
  ValueInfo info{.name = name, .dtype = dtype, .has_shape = true, .dimensions = {}};
  for (std::int64_t& size : shape) {
    const bool batch = size == kBatch;
    info.dimensions.push_back({size, batch ? "batch" : ""});
    if (!batch) continue;
    const auto bound = impl_.options.dims.find("batch");
    check_user(bound != impl_.options.dims.end(), "input '", name, "': the batch size is not bound");
    size = bound->second;
  }
  if (const auto whole = impl_.options.shapes.find(name); whole != impl_.options.shapes.end()) shape = whole->second;
  impl_.inputs.push_back(std::move(info));
  return impl_.builder.input({is_float(dtype) ? impl_.options.float_type.value_or(dtype) : dtype, std::move(shape)}, name);
}

void Layers::output(const std::string& name, Var value) {
  check_user(std::ranges::find(impl_.model.outputs, name) == impl_.model.outputs.end(), "the model has two outputs named '", name,
             "'");
  // An output is a value of its own: not an input, a state or another output.
  const std::vector<ir::Value*>& outputs = impl_.model.graph.outputs();
  const bool own = value.value->producer && std::ranges::find(outputs, value.value) == outputs.end();
  if (!own) value = impl_.builder.apply(ir::ops::kReshape, {value}, {{"shape", value.shape()}});
  impl_.model.graph.rename(value.value, name);
  impl_.model.graph.outputs().push_back(value.value);
  impl_.model.outputs.push_back(name);
  impl_.model.output_types.push_back(value.value->type);
}

ir::Value* Layers::Impl::state(const std::string& name, Shape shape, const std::vector<double>& values, ir::StateRole role) {
  check_user(!model.weights.contains(name), "the model has two parameters named '", name, "'");
  const DType dtype = options.float_type.value_or(DType::f32);
  model.weights.emplace(name, Tensor::of(dtype, shape, values));
  ir::Value* value = model.graph.add_state({dtype, shape}, name, role);
  Parameter& report = model.parameters.emplace_back();
  report.name = report.initializer = name;
  report.type = {dtype, std::move(shape)};
  const bool frozen = std::any_of(options.freeze.begin(), options.freeze.end(), [&](auto& glob) { return matches(glob, name); });
  report.trained = role == ir::StateRole::parameter && !frozen;
  report.reason = frozen                             ? "frozen by name"
                  : role != ir::StateRole::parameter ? "running statistic"
                                                     : "parameter of " + builder.origin();
  report.nodes = {builder.origin()};
  report.updated = role == ir::StateRole::running_statistic && !frozen;
  return value;
}

Parameter& Layers::Impl::report_of(const std::string& name) {
  return *std::find_if(model.parameters.begin(), model.parameters.end(), [&](const Parameter& p) { return p.name == name; });
}

Var Layers::parameter(const std::string& name, Shape shape, const std::vector<double>& values) {
  return impl_.builder.wrap(impl_.state(name, std::move(shape), values, ir::StateRole::parameter));
}

std::vector<double> Layers::uniform(const std::string& name, std::int64_t count, double bound) const {
  const NamedDraws draws(impl_.seed, name);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = (2 * draws(i) - 1) * bound;
  return values;
}

std::vector<double> Layers::normal(const std::string& name, std::int64_t count) const {
  const NamedDraws draws(impl_.seed, name);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {  // Box and Muller
    const double radius = std::sqrt(-2 * std::log(1 - draws(2 * i)));
    values[static_cast<std::size_t>(i)] = radius * std::cos(2 * std::numbers::pi * draws(2 * i + 1));
  }
  return values;
}

Var Layers::constant(Tensor value) { return impl_.builder.constant(std::move(value)); }

namespace frontend {

std::vector<std::int64_t> each_axis(const std::string& where, std::string_view what, const PerAxis& given, std::size_t rank,
                                    std::int64_t least) {
  std::vector<std::int64_t> sizes = given.values();
  if (sizes.size() == 1) sizes.assign(rank, sizes[0]);
  check_user(sizes.size() == rank, where, what, " has ", sizes.size(), " numbers, wanted one or ", rank);
  for (std::int64_t size : sizes)
    check_user(size >= least && size < (1 << 30), where, what, " is ", size, ", wanted at least ", least, " and below 2^30");
  return sizes;
}

std::int64_t axis_of(const std::string& where, std::int64_t axis, Var x) {
  check_user(axis >= -x.rank() && axis < x.rank(), where, "axis ", axis, " of ", to_string(x.type()), ", wanted one of ", x.rank());
  return axis < 0 ? axis + x.rank() : axis;
}

std::vector<ValueInfo> inputs_of(const Definition& definition) {
  ImportedModel model;
  ImportOptions options;
  options.dims["batch"] = 2;
  Layers::Impl impl(model, options, definition.seed);
  Layers layers(impl);
  definition.write(layers);
  return impl.inputs;
}

ImportedModel instantiate(const Definition& definition, const ImportOptions& options) {
  ImportedModel model;
  Layers::Impl impl(model, options, definition.seed);
  Layers layers(impl);
  definition.write(layers);
  impl.random.count_steps();
  check_user(!model.outputs.empty(), "the model's definition names no output");
  return model;
}

}  // namespace frontend
}  // namespace gcomp
