// Models written in C++ as graphs: inputs, outputs, parameters and their initial values.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/globs.h"
#include "frontend/layers/impl.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

using frontend::ImportOptions;
using frontend::Parameter;

/// Options that stand for what a file says, and a definition does not.
void check_options(const ImportOptions& options) {
  for (const auto& [flag, given] : {std::pair("--tie", !options.tie.empty()), std::pair("--untie", !options.untie.empty()),
                                    std::pair("--batchnorm-variance", !options.batchnorm_variance.empty())})
    if (given)
      throw UserError(concat(flag,
                             ": a model that is defined in C++ shares the parameters that it uses twice, and moves running "
                             "variances as PyTorch does; this is for ONNX files"),
                      ExitCode::usage);
}

void check_globs(const ImportOptions& options, const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  frontend::require_matches("--freeze", options.freeze, names, "parameter");
  frontend::require_matches("--thaw", options.train, names, "parameter");
}

}  // namespace

bool Layers::training() const { return impl_.options.training || impl_.options.training_form; }

Var Layers::input(const std::string& name, DType dtype, Shape shape) {
  ValueInfo info{.name = name, .dtype = dtype, .has_shape = true, .dimensions = {}};
  for (std::int64_t& size : shape) {
    const bool batch = size == kBatch;
    info.dimensions.push_back({size, batch ? "batch" : ""});
    if (const auto bound = impl_.options.dims.find("batch"); batch && bound != impl_.options.dims.end()) size = bound->second;
  }
  if (const auto whole = impl_.options.shapes.find(name); whole != impl_.options.shapes.end()) shape = whole->second;
  check_user(std::ranges::count(shape, kBatch) == 0, "input '", name, "': the batch size is not bound");
  check_user(std::ranges::find(impl_.inputs, name, &ValueInfo::name) == impl_.inputs.end(), "the model has two inputs named '",
             name, "'");
  impl_.inputs.push_back(std::move(info));
  return impl_.builder.input({is_float(dtype) ? impl_.options.float_type.value_or(dtype) : dtype, std::move(shape)}, name);
}

void Layers::output(const std::string& name, Var value) {
  check_user(std::ranges::find(impl_.model.outputs, name) == impl_.model.outputs.end(), "the model has two outputs named '", name,
             "'");
  check_user(std::ranges::find(impl_.inputs, name, &ValueInfo::name) == impl_.inputs.end() &&
                 std::ranges::find(impl_.model.parameters, name, &Parameter::name) == impl_.model.parameters.end(),
             "the model's output '", name, "' has the name of an input or a parameter");
  check_user(static_cast<bool>(value), "output '", name, "' is a Var that stands for no value");
  impl_.builder.require_own(concat("output '", name, "': "), value);
  // An output is a value of its own: not an input, a state or another output.
  const std::vector<ir::Value*>& outputs = impl_.model.graph.outputs();
  const bool own = value.value->producer && std::ranges::find(outputs, value.value) == outputs.end();
  if (!own) value = impl_.builder.apply(ir::ops::kReshape, {value}, {{"shape", value.shape()}});
  impl_.model.graph.rename(value.value, name);
  impl_.model.graph.outputs().push_back(value.value);
  impl_.model.outputs.push_back(name);
  impl_.model.output_types.push_back(value.value->type);
}

ir::Value* Layers::Impl::state(const std::string& name, Shape shape, frontend::InitialValues initial, ir::StateRole role) {
  check_user(std::ranges::find(model.parameters, name, &Parameter::name) == model.parameters.end(),
             "the model has two parameters named '", name, "'");
  const DType dtype = options.float_type.value_or(DType::f32);
  model.weights.emplace(
      name, [type = TensorType{dtype, shape}, initial = std::move(initial)] { return frontend::filled(type, initial); });
  ir::Value* value = model.graph.add_state({dtype, shape}, name, role);
  Parameter& report = model.parameters.emplace_back();
  report.name = report.initializer = name;
  report.type = {dtype, std::move(shape)};
  const bool statistic = role != ir::StateRole::parameter;
  const std::vector<std::string> none;
  const auto asked = frontend::asked_training(options.freeze, statistic ? none : options.train, {name}, name);
  const bool frozen = asked && !asked->trained;
  report.trained = !statistic && !frozen;
  report.reason = asked ? asked->reason : statistic ? "running statistic" : "parameter of " + builder.origin();
  report.nodes = {builder.origin()};
  report.updated = role == ir::StateRole::running_statistic && !frozen;
  return value;
}

Parameter& Layers::Impl::report_of(const std::string& name) {
  return *std::find_if(model.parameters.begin(), model.parameters.end(), [&](const Parameter& p) { return p.name == name; });
}

Var Layers::parameter(const std::string& name, Shape shape, const std::vector<double>& values) {
  check_user(values.size() == 1 || static_cast<std::int64_t>(values.size()) == element_count(shape), "parameter '", name, "' of [",
             to_string(shape), "] has ", values.size(), " initial values, wanted one or ", element_count(shape));
  if (values.size() == 1) return impl_.parameter(name, std::move(shape), frontend::all_of(values[0]));
  return impl_.parameter(name, std::move(shape), [values](std::int64_t first, std::span<double> part) {
    std::copy_n(values.begin() + first, part.size(), part.begin());
  });
}

Var Layers::uniform_parameter(const std::string& name, Shape shape, double bound) {
  return impl_.parameter(name, std::move(shape), frontend::uniform_values(impl_.seed, name, bound));
}

Var Layers::normal_parameter(const std::string& name, Shape shape, double deviation) {
  return impl_.parameter(name, std::move(shape), frontend::normal_values(impl_.seed, name, deviation));
}

std::vector<double> Layers::uniform(const std::string& name, std::int64_t count, double bound) const {
  check_user(count >= 0, "uniform draws of '", name, "': ", count, " are wanted");
  std::vector<double> values(static_cast<std::size_t>(count));
  frontend::uniform_values(impl_.seed, name, bound)(0, values);
  return values;
}

std::vector<double> Layers::normal(const std::string& name, std::int64_t count) const {
  check_user(count >= 0, "normal draws of '", name, "': ", count, " are wanted");
  std::vector<double> values(static_cast<std::size_t>(count));
  frontend::normal_values(impl_.seed, name, 1)(0, values);
  return values;
}

Var Layers::constant(Tensor value) {
  const bool converts = is_float(value.dtype()) && impl_.options.float_type;
  return impl_.builder.constant(converts ? value.cast(*impl_.options.float_type) : std::move(value));
}

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
  const auto inputs = [&](std::optional<DType> float_type) {
    ImportedModel model;
    ImportOptions options;
    options.dims["batch"] = 2;
    options.float_type = float_type;
    Layers::Impl impl(model, options, definition.seed);
    Layers layers(impl);
    definition.write(layers);
    return impl.inputs;
  };
  try {
    return inputs(std::nullopt);
  } catch (const UserError&) {
    try {
      return inputs(DType::f64);  // what fits as float64 alone says so where it is compiled without GraphOptions::precision
    } catch (const UserError&) {}
    throw;
  }
}

ImportedModel instantiate(const Definition& definition, const ImportOptions& options) {
  check_options(options);
  ImportedModel model;
  Layers::Impl impl(model, options, definition.seed);
  Layers layers(impl);
  definition.write(layers);
  impl.random.count_steps();
  check_user(!model.outputs.empty(), "the model's definition names no output");
  const auto nodes = static_cast<std::int64_t>(model.graph.nodes().size());
  check_user(nodes <= options.limits.nodes, "the model's definition has ", nodes, " nodes, more than ImportLimits::nodes, ",
             options.limits.nodes);
  check_globs(options, model.parameters);
  return model;
}

}  // namespace frontend
}  // namespace gcomp
