#include "frontend/layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/base/named_draws.h"
#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

namespace table = ir::ops;
using frontend::ImportOptions;
using frontend::Parameter;

constexpr double kBatchNormMomentum = 0.1;
constexpr double kEpsilon = 1e-5;

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

struct Layers::Impl {
  Impl(frontend::ImportedModel& model, const ImportOptions& options, std::uint64_t seed)
      : model(model), options(options), seed(seed), builder(model.graph) {}

  frontend::ImportedModel& model;
  const ImportOptions& options;
  std::uint64_t seed;
  ir::Builder builder;
  std::vector<ValueInfo> inputs;

  ir::Value* state(const std::string& name, Shape shape, const std::vector<double>& values, ir::StateRole role);
  Parameter& report_of(const std::string& name);
};

bool Layers::training() const { return impl_.options.training; }

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

Var Layers::linear(const std::string& name, Var x, std::int64_t features, LinearOptions options) {
  impl_.builder.set_origin(name);
  const std::int64_t in = x.dim(-1);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  Var weight = parameter(name + ".weight", {features, in}, uniform(name + ".weight", features * in, bound));
  Shape shape = x.shape();
  Var y = impl_.builder.matmul(impl_.builder.reshape(x, {x.type().elements() / in, in}), weight, false, true);
  if (options.bias)
    y = y + impl_.builder.broadcast(parameter(name + ".bias", {features}, uniform(name + ".bias", features, bound)), y.shape());
  shape.back() = features;
  return impl_.builder.reshape(y, std::move(shape));
}

Var Layers::conv2d(const std::string& name, Var x, std::int64_t channels, std::int64_t kernel, ConvolutionOptions options) {
  impl_.builder.set_origin(name);
  check_user(x.rank() == 4, "layer '", name, "': the input is ", to_string(x.type()), ", wanted [batch, channels, height, width]");
  const std::int64_t in = x.dim(1) / options.groups, fan_in = in * kernel * kernel;
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  Var weight = parameter(name + ".weight", {channels, in, kernel, kernel}, uniform(name + ".weight", channels * fan_in, bound));
  const std::vector<std::int64_t> padding(2, options.padding);
  Var y = impl_.builder.apply(table::kConvolution, {x, weight},
                              {{"strides", std::vector<std::int64_t>(2, options.stride)},
                               {"low", padding},
                               {"high", padding},
                               {"dilations", std::vector<std::int64_t>(2, options.dilation)},
                               {"groups", options.groups}});
  if (!options.bias) return y;
  return y +
         impl_.builder.broadcast(parameter(name + ".bias", {channels}, uniform(name + ".bias", channels, bound)), y.shape(), {1});
}

Var Layers::batch_norm(const std::string& name, Var x) {
  impl_.builder.set_origin(name);
  check_user(x.rank() >= 2, "layer '", name, "': the input is ", to_string(x.type()), ", wanted [batch, channels, ...]");
  const Shape channel{x.dim(1)};
  Var scale = parameter(name + ".weight", channel, {1}), bias = parameter(name + ".bias", channel, {0});
  ir::Value* mean = impl_.state(name + ".running_mean", channel, {0}, ir::StateRole::running_statistic);
  ir::Value* variance = impl_.state(name + ".running_var", channel, {1}, ir::StateRole::running_statistic);
  const auto spread = [&](Var v) { return impl_.builder.broadcast(v, x.shape(), {1}); };
  // What is frozen does not change, and neither is it mixed with what does.
  const auto is_fixed = [&](ir::Value* s) { return !impl_.report_of(s->name).updated; };
  const bool fixed = is_fixed(mean) || is_fixed(variance);
  if (fixed) impl_.report_of(mean->name).updated = impl_.report_of(variance->name).updated = false;
  if (!training() || fixed) {
    Var centered = x - spread(impl_.builder.wrap(mean));
    return centered * spread(table::kRsqrt(impl_.builder.wrap(variance) + kEpsilon) * scale) + spread(bias);
  }
  const std::vector<Var> normed = impl_.builder.apply_many(table::kBatchNorm, {x, scale, bias}, {{"epsilon", kEpsilon}});
  const double count = static_cast<double>(x.type().elements() / x.dim(1));
  const auto blend = [&](ir::Value* running, Var batch) {
    impl_.builder.update(running, impl_.builder.wrap(running) * (1 - kBatchNormMomentum) + batch * kBatchNormMomentum);
  };
  blend(mean, normed[1]);
  blend(variance, normed[2] * (count / (count - 1)));  // PyTorch keeps the unbiased variance
  return normed[0];
}

Var Layers::layer_norm(const std::string& name, Var x) {
  impl_.builder.set_origin(name);
  const Shape row{x.dim(-1)};
  Var scale = parameter(name + ".weight", row, {1}), bias = parameter(name + ".bias", row, {0});
  return impl_.builder.apply(table::kLayerNorm, {x, scale, bias}, {{"axis", x.rank() - 1}, {"epsilon", kEpsilon}});
}

Var Layers::embedding(const std::string& name, Var ids, std::int64_t rows, std::int64_t width) {
  impl_.builder.set_origin(name);
  return impl_.builder.gather(parameter(name + ".weight", {rows, width}, normal(name + ".weight", rows * width)), ids, 0);
}

Var Layers::relu(Var x) { return table::kRelu(x); }
Var Layers::sigmoid(Var x) { return table::kSigmoid(x); }
Var Layers::tanh(Var x) { return table::kTanh(x); }
Var Layers::gelu(Var x) { return x * (table::kErf(x * (1 / std::numbers::sqrt2)) + 1.0) * 0.5; }
Var Layers::softmax(Var x, std::int64_t axis) {
  return impl_.builder.apply(table::kSoftmax, {x}, {{"axis", axis < 0 ? axis + x.rank() : axis}});
}

Var Layers::max_pool2d(Var x, std::int64_t size) {
  const std::vector<std::int64_t> window(2, size), zeros(2, 0), ones(2, 1);
  return impl_.builder.apply(table::kMaxPool, {x},
                             {{"kernel", window}, {"strides", window}, {"low", zeros}, {"high", zeros}, {"dilations", ones}});
}

Var Layers::global_average_pool2d(Var x) { return impl_.builder.mean(x, {x.rank() - 2, x.rank() - 1}); }
Var Layers::flatten(Var x) { return impl_.builder.reshape(x, {x.dim(0), x.type().elements() / x.dim(0)}); }

Var Layers::constant(Tensor value) { return impl_.builder.constant(std::move(value)); }

namespace frontend {

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
  check_user(!model.outputs.empty(), "the model's definition names no output");
  return model;
}

}  // namespace frontend
}  // namespace gcomp
