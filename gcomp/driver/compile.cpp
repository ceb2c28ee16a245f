#include "gcomp/driver/compile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "gcomp/driver/model_source.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/row_dependence.h"

namespace gcomp::driver {
namespace {

/// Runs `work` and reports its begin and its seconds as `phase`.
template <class Work>
auto timed(const CompileHooks& hooks, std::string_view phase, Work work) {
  if (hooks.begin) hooks.begin(phase);
  const auto start = std::chrono::steady_clock::now();
  auto result = work();
  if (hooks.phase) hooks.phase(phase, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return result;
}

/// Data and weights are told apart by their names: no input and no state of the model may have that of the loss's own input.
void require_other_name(const std::string& name, const Model& model, std::string_view what) {
  check_user(name != passes::kLabelInput, "model '", model.name(), "' has ", what, " named '", passes::kLabelInput,
             "', the name of the loss's own input; rename it, or take an output of the model as the loss: output:NAME");
}

bool mixes(const GraphOptions& options) { return options.precision == DType::f16 || options.precision == DType::bf16; }

frontend::ImportOptions import_options(const Model& model, const GraphOptions& options) {
  frontend::ImportOptions import;
  import.shapes = bind_shapes(model.name(), model.inputs(), options.shapes);
  import.dims = options.shapes.dims;
  if (!onnx_file(model) && options.shapes.batch) import.dims.emplace("batch", *options.shapes.batch);
  import.seed = options.seed;
  import.float_type = mixes(options) ? DType::f32 : options.precision;
  import.freeze = options.freeze;
  import.train = options.train;
  import.tie = options.tie;
  import.untie = options.untie;
  import.batchnorm_variance = options.batchnorm_variance;
  import.limits = options.limits;
  return import;
}

frontend::Model imported(const Model& model, const frontend::ImportOptions& import, const CompileHooks& hooks) {
  return timed(hooks, "import", [&] { return instantiate(model, import); });
}

/// The type of the labels of one batch, where the data has any.
std::optional<TensorType> found_label(const ShapeRequest& shapes) {
  const auto found = shapes.data.find(std::string(passes::kLabelInput));
  if (found == shapes.data.end()) return std::nullopt;
  TensorType type = found->second;
  if (shapes.batch && !type.shape.empty()) type.shape[0] = *shapes.batch;
  return type;
}

/// For passes of either stage.
passes::PipelineOptions pass_options(const runtime::Target& target, const CompileHooks& hooks) {
  passes::PipelineOptions options;
  options.disabled = hooks.disabled;
  options.target = codegen::target_info(target);
  options.maker = "the import";
  options.observer = hooks.pass;
  return options;
}

/// 16 bits are for the ops that bear them, in graphs of f32.
passes::PipelineOptions pass_options(const GraphOptions& options, const CompileHooks& hooks) {
  passes::PipelineOptions passes = pass_options(options.target, hooks);
  if (mixes(options)) passes.autocast = passes::AutocastOptions{.low = *options.precision};
  return passes;
}

/// ": 'a' (--freeze=*), 'b' (mask), ...", the first few.
std::string reasons_of(const std::vector<frontend::Parameter>& parameters) {
  constexpr std::size_t kListed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(parameters.size(), kListed); ++i)
    text += concat(i == 0 ? ": " : ", ", "'", parameters[i].name, "' (", parameters[i].reason, ")");
  return parameters.size() > kListed ? text + ", ..." : text;
}

/// Losses of scores, and the op that makes scores the probabilities that the loss computes by itself.
constexpr std::pair<passes::LossKind, const ir::OpDef*> kScoreLosses[] = {{passes::LossKind::cross_entropy, &ir::ops::kSoftmax},
                                                                          {passes::LossKind::bce_with_logits, &ir::ops::kSigmoid}};

/// A note where a loss of scores looks at probabilities; nothing elsewhere.
std::optional<std::string> note_probabilities(passes::LossKind loss, const ir::Value* output, const std::string& name) {
  for (const auto& [kind, op] : kScoreLosses)
    if (loss == kind && output->producer && output->producer->op == op)
      return concat("the loss takes scores, and output '", name, "' is a ", op->name,
                    " of them already, which is taken twice then");
  return std::nullopt;
}

/// The forward graph in training form, checked for what `loss` needs of it.
ModelGraph trainable(const Model& model, const GraphOptions& options, const LossSpec& loss, const CompileHooks& hooks) {
  const bool has_label = loss.kind != passes::LossKind::output;
  if (has_label)
    for (const frontend::ValueInfo& input : model.inputs()) require_other_name(input.name, model, "an input");
  frontend::ImportOptions import = import_options(model, options);
  import.training = true;
  import.loss_output = loss.output;
  ModelGraph made;
  made.model = imported(model, import, hooks);
  made.graph = std::move(made.model.graph);
  made.model.graph = ir::Graph("forward");
  check_user(!trained_names(made.model).empty(), "model '", model.name(), "': nothing to train: ", made.model.parameters.size(),
             " floating-point initializers, all frozen", reasons_of(made.model.parameters));
  if (!has_label) return made;
  for (const ir::State& state : made.graph.states()) require_other_name(state.value->name, model, "an initializer");
  try {
    made.target = loss_target(made.model, loss, found_label(options.shapes));
  } catch (const UserError& error) { throw UserError(concat("model '", model.name(), "': ", error.what()), error.code()); }
  const std::size_t at = loss_output(settled(loss, made), made.model.outputs);
  if (auto note = note_probabilities(loss.kind, made.graph.outputs()[at], made.model.outputs[at]))
    made.model.repairs.push_back(std::move(*note));
  return made;
}

std::optional<TensorType> label_type(const ModelGraph& made) {
  return made.target ? std::optional(made.target->label.type) : std::nullopt;
}

/// Only f16 lacks the range of gradients.
std::optional<passes::LossScaling> scaling_of(const GraphOptions& options) {
  if (options.precision != DType::f16) return std::nullopt;
  return passes::LossScaling{options.loss_scale};
}

/// A forward graph with its loss and gradients, and with updates where there is an optimizer.
ModelGraph differentiated(ModelGraph made, const GraphOptions& options, const LossSpec& loss,
                          const std::optional<Optimizer>& optimizer, const CompileHooks& hooks) {
  return timed(hooks, "differentiate", [&] {
    SettledStep step = optimizer ? settled(options.step, *optimizer, made.model, made.graph) : SettledStep();
    made.groups = std::move(step.groups);
    const passes::TrainingRequest request{.loss = settled(loss, made),
                                          .optimizer = optimizer,
                                          .trained = trained_names(made.model),
                                          .label = label_type(made),
                                          .scaling = scaling_of(options),
                                          .step = std::move(step.options)};
    passes::prepare(made.graph, pass_options(options, hooks), &request);
    return std::move(made);
  });
}

}  // namespace

std::vector<std::string> trained_names(const frontend::Model& model) {
  std::vector<std::string> names;
  for (const frontend::Parameter& parameter : model.parameters)
    if (parameter.trained) names.push_back(parameter.name);
  return names;
}

ModelGraph inference_graph(const Model& model, const GraphOptions& options, const CompileHooks& hooks) {
  frontend::ImportOptions import = import_options(model, options);
  import.training_form = options.training_form;
  import.loss_output = options.loss_output;
  ModelGraph made;
  made.model = imported(model, import, hooks);
  made.graph = std::move(made.model.graph);
  made.model.graph = ir::Graph("forward");
  made.graph.remove_updates(options.training_form ? std::optional(ir::StateRole::counter) : std::nullopt);
  made.graph.remove_dead();
  if (mixes(options)) passes::prepare(made.graph, pass_options(options, hooks));
  made.graph.set_name("forward");
  return made;
}

std::string row_dependence(const ir::Graph& forward) {
  std::int64_t rows = 0;
  for (const ir::Value* input : forward.inputs()) {
    if (input->type.shape.empty()) continue;
    if (rows != 0 && rows != input->type.shape[0]) return "";
    rows = input->type.shape[0];
  }
  return rows > 1 ? passes::row_dependence(forward, rows).value_or("") : "";
}

ModelGraph training_graph(const Model& model, const GraphOptions& options, const LossSpec& loss, const Optimizer& optimizer,
                          const CompileHooks& hooks) {
  return differentiated(trainable(model, options, loss, hooks), options, loss, optimizer, hooks);
}

ModelGraph gradient_graph(const Model& model, const GraphOptions& options, const LossSpec& loss, const CompileHooks& hooks) {
  return differentiated(trainable(model, options, loss, hooks), options, loss, std::nullopt, hooks);
}

LoweredGraph lower_graph(ir::Graph graph, const runtime::Target& target, const CompileHooks& hooks) {
  const passes::PipelineOptions options = pass_options(target, hooks);
  std::optional<ir::Graph> before;
  if (hooks.internal_error) before = ir::clone(graph);
  LoweredGraph lowered;
  try {
    lowered.plan = timed(hooks, "passes", [&] { return passes::lower(graph, options); });
  } catch (const InternalError& error) {
    if (before) hooks.internal_error(*before, error.what());
    throw;
  }
  lowered.graph = std::move(graph);
  return lowered;
}

runtime::Program generate_program(const LoweredGraph& lowered, const runtime::Target& target, const CompileHooks& hooks,
                                  const codegen::ProgramLimits& limits) {
  if (!hooks.costs) return timed(hooks, "generate", [&] { return codegen::generate(lowered.graph, lowered.plan, target, limits); });
  codegen::CountedProgram counted =
      timed(hooks, "generate", [&] { return codegen::generate_counted(lowered.graph, lowered.plan, target, limits); });
  hooks.costs(counted.costs);
  return std::move(counted.program);
}

runtime::Program compile_graph(ir::Graph graph, const runtime::Target& target, const CompileHooks& hooks,
                               const codegen::ProgramLimits& limits) {
  return generate_program(lower_graph(std::move(graph), target, hooks), target, hooks, limits);
}

LossSpec settled(LossSpec loss, const ModelGraph& made) {
  if (!made.target) return loss;
  loss.output = made.target->output.name;
  if (loss.kind == passes::LossKind::cross_entropy) loss.axis = made.target->label.axis;
  return loss;
}

std::size_t loss_output(const LossSpec& loss, const std::vector<std::string>& outputs) {
  const auto found = std::find(outputs.begin(), outputs.end(), loss.output);
  check_internal(found != outputs.end(), "the forward graph lacks the output '", loss.output, "' of the training step's loss");
  return static_cast<std::size_t>(found - outputs.begin());
}

}  // namespace gcomp::driver
