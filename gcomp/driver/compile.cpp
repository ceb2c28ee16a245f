#include "gcomp/driver/compile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_set>
#include <utility>
#include <vector>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/row_batches.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/nearest.h"
#include "ir/ops/table.h"
#include "passes/input_form.h"
#include "passes/pipeline.h"
#include "passes/row_dependence.h"
#include "passes/training/chunk_loss.h"
#include "passes/training/distribute.h"
#include "runtime/backend.h"

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

/// The array `label` is no input of the model: which of the two a batch's array of that name is could not be told.
void require_other_input(const Model& model, const LossSpec& loss) {
  if (!loss.has_default_arguments()) return;
  for (const frontend::ValueInfo& input : model.inputs())
    check_user(input.name != passes::kLabelArray, "model '", model.name(), "' has an input named '", passes::kLabelArray,
               "', the name of the loss's own input; rename it, or name what the loss compares: mse(output, array), output:NAME");
}

bool mixes(const GraphOptions& options) { return options.precision == DType::f16 || options.precision == DType::bf16; }

/// What the options say of the inputs, for the rows that run at once.
ShapeRequest shard_shapes(const GraphOptions& options) {
  ShapeRequest shapes = options.shapes;
  shapes.batch = shard_rows(shapes.batch, options.step.micro_batches);
  shapes.micro_batches = options.step.micro_batches;
  return shapes;
}

frontend::ImportOptions import_options(const Model& model, const GraphOptions& options) {
  frontend::ImportOptions import;
  ShapeRequest shapes = shard_shapes(options);
  if (!onnx_file(model)) shapes.batch_symbol = "batch";
  import.shapes = input_shapes(model.name(), model.inputs(), shapes);
  import.dims = shapes.dims;
  if (!onnx_file(model) && shapes.batch) import.dims.emplace("batch", *shapes.batch);
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

ModelGraph imported(const Model& model, const frontend::ImportOptions& import, const GraphOptions& options,
                    const CompileHooks& hooks) {
  return timed(hooks, "import", [&] {
    ModelGraph made;
    made.model = instantiate(model, import);
    if (!options.lora.empty()) made.lora = attach_lora(made.model, options.lora, static_cast<std::uint64_t>(import.seed));
    made.graph = std::move(made.model.graph);
    passes::apply_input_forms(made.graph, options.input_forms);
    made.model.graph = ir::Graph("forward");
    return made;
  });
}

/// The data's arrays but the model's inputs, as those rows have them.
std::map<std::string, TensorType> found_arrays(const Model& model, const GraphOptions& options) {
  const ShapeRequest shapes = shard_shapes(options);
  std::map<std::string, TensorType> arrays = shapes.data;
  for (const frontend::ValueInfo& input : model.inputs()) arrays.erase(input.name);
  for (auto& [name, type] : arrays)
    if (shapes.batch && !type.shape.empty()) type.shape[0] = *shapes.batch;
  return arrays;
}

/// For passes of either stage.
passes::PipelineOptions pass_options(const runtime::Target& target, const CompileHooks& hooks) {
  passes::PipelineOptions options;
  options.disabled = hooks.disabled;
  if (hooks.horizontal_bytes > 0) options.fuse.horizontal_bytes = hooks.horizontal_bytes;
  options.most_memory = hooks.most_memory;
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
constexpr std::pair<std::string_view, const ir::OpDef*> kScoreLosses[] = {{"cross_entropy", &ir::ops::kSoftmax},
                                                                          {"bce_with_logits", &ir::ops::kSigmoid}};

/// A note where a loss of scores, alone, looks at probabilities; nothing elsewhere.
std::optional<std::string> note_probabilities(const LossSpec& loss, const ModelGraph& made) {
  if (made.target.bound.outputs.empty()) return std::nullopt;
  const std::string& name = made.target.bound.outputs[0];  // the only one where the loss is one call
  const auto at = std::ranges::find(made.model.outputs, name) - made.model.outputs.begin();
  const ir::Value* output = made.graph.outputs()[static_cast<std::size_t>(at)];
  for (const auto& [kind, op] : kScoreLosses)
    if (loss.expression.text == kind && output->producer && output->producer->op == op)
      return concat("the loss takes scores, and output '", name, "' is a ", op->name,
                    " of them already, which is taken twice then");
  return std::nullopt;
}

/// A note where the first axis of an input, along which rows of data lie, is fixed, and another one has the rows of an output: a
/// sequence of steps that each have a batch.
std::optional<std::string> note_batch_behind(const Model& model) {
  const frontend::OnnxFile* file = onnx_file(model);
  if (!file) return std::nullopt;
  for (const frontend::ValueInfo& input : file->inputs)
    for (const frontend::ValueInfo& output : file->outputs) {
      if (input.dimensions.size() < 2 || input.dimensions[0].size < 0 || output.dimensions.empty()) continue;
      const std::string& rows = output.dimensions[0].symbol;
      const auto behind = std::ranges::find(input.dimensions, rows, &frontend::Dimension::symbol) - input.dimensions.begin();
      if (rows.empty() || behind == std::ssize(input.dimensions)) continue;
      return concat("input '", input.name, "' has its rows along axis 0, which the file fixes at ", input.dimensions[0].size,
                    ", but '", rows, "', the rows of output '", output.name, "', along axis ", behind,
                    ": a model that takes the batch first trains on samples");
    }
  return std::nullopt;
}

/// A note where products of 16 bits are no faster than those of f32, to which their operands are widened first; nothing elsewhere.
std::optional<std::string> note_slow_precision(const GraphOptions& options) {
  if (!mixes(options)) return std::nullopt;
  const auto gains_from = runtime::backend_of(options.target).gains_from;
  if (!gains_from || gains_from(*options.precision)) return std::nullopt;
  return concat("products of ", name_of(*options.precision), " are computed in f32 on this processor, where f32 itself is faster");
}

/// Adds what the loss looks at and reads.
void add_target(ModelGraph& made, const Model& model, const GraphOptions& options, const LossSpec& loss) {
  try {
    made.target = loss_target(made.model, made.graph, loss, found_arrays(model, options));
  } catch (const UserError& error) {
    const std::string& source = options.shapes.data_source;
    throw UserError(concat("model '", model.name(), "'", source.empty() ? "" : concat(", data '", source, "'"), ": ", error.what()),
                    error.code());
  }
}

/// Of what batch normalization in a graph of one shard takes the statistics.
frontend::WholeBatch normalized_batch(const StepSettings& step) {
  if (!step.sync_batchnorm || step.micro_batches == 1) return {};
  check(step);
  return {.shards = step.micro_batches, .lock_step = step.micro_batches / step.ranks};
}

/// The forward graph in training form, checked for what `loss` needs of it.
ModelGraph trainable(const Model& model, const GraphOptions& options, const LossSpec& loss, const CompileHooks& hooks) {
  require_other_input(model, loss);
  frontend::ImportOptions import = import_options(model, options);
  import.training = true;
  import.loss_outputs = passes::possible_outputs(loss);
  import.batch = normalized_batch(options.step);
  ModelGraph made = imported(model, import, options, hooks);
  check_user(!trained_names(made.model).empty(), "model '", model.name(), "': nothing to train: ", made.model.parameters.size(),
             " floating-point initializers, all frozen", reasons_of(made.model.parameters));
  add_target(made, model, options, loss);
  for (auto& note : {note_probabilities(loss, made), note_slow_precision(options), note_batch_behind(model)})
    if (note) made.model.repairs.push_back(*note);
  return made;
}

/// Values of floats from which the named outputs are computed by way of floats alone, as gradients come.
std::unordered_set<const ir::Value*> differentiable_sources(const ModelGraph& made, const std::vector<std::string>& outputs) {
  std::unordered_set<const ir::Value*> sources;
  std::vector<const ir::Value*> next;
  for (std::size_t i = 0; i < made.model.outputs.size(); ++i)
    if (std::ranges::find(outputs, made.model.outputs[i]) != outputs.end()) next.push_back(made.graph.outputs()[i]);
  while (!next.empty()) {
    const ir::Value* value = next.back();
    next.pop_back();
    if (!value || !is_float(value->type.dtype) || !sources.insert(value).second || !value->producer ||
        value->producer->op->detaches)
      continue;
    next.insert(next.end(), value->producer->operands.begin(), value->producer->operands.end());
  }
  return sources;
}

/// A parameter on which the loss does not depend has no gradient: PyTorch's optimizers pass it over, with its decay and moments.
void leave_unreached(ModelGraph& made, const std::string& model) {
  const auto sources = differentiable_sources(made, made.target.bound.outputs);
  std::vector<std::string> left;
  for (frontend::Parameter& parameter : made.model.parameters) {
    if (!parameter.trained) continue;
    const auto state = std::ranges::find(made.graph.states(), parameter.name, [](const ir::State& s) { return s.value->name; });
    if (state != made.graph.states().end() && sources.contains(state->value)) continue;
    parameter.trained = false;
    parameter.reason = "the loss does not depend on it";
    left.push_back(parameter.name);
  }
  if (left.empty()) return;
  check_user(!trained_names(made.model).empty(), "model '", model, "': nothing to train: the loss depends on none of ",
             listing(left));
  made.model.repairs.push_back(concat("the loss does not depend on ", listing(left),
                                      left.size() == 1 ? ", which stays" : ", which stay",
                                      " as in the file: without a gradient nothing moves or decays them"));
}

/// Only f16 lacks the range of gradients.
std::optional<passes::LossScaling> scaling_of(const GraphOptions& options) {
  if (options.precision != DType::f16) return std::nullopt;
  if (const auto& scale = options.loss_scale; scale && !(std::isfinite(*scale) && *scale > 0))
    throw UserError(concat("a loss scale of ", *scale, "; wanted a finite number above 0"), ExitCode::usage);
  return passes::LossScaling{options.loss_scale};
}

/// Knowing the rate of the run, which rules with corrected_weight_decay go by beside that of the step.
std::optional<Optimizer> of_run(std::optional<Optimizer> optimizer, double learning_rate) {
  constexpr std::string_view kWhat = "--optimizer";
  if (!optimizer || !optimizer->options().knows("corrected_weight_decay")) return optimizer;
  optimizer->set("lr", learning_rate, kWhat);
  optimizer->check(kWhat);
  return optimizer;
}

/// What the loss of a batch is where it is not that of its rows together.
void add_notes(std::vector<std::string>& notes, const passes::Accumulation& accumulation, const StepSettings& step) {
  for (const std::string& term : accumulation.averaged)
    notes.push_back(concat("the loss '", term, "' is no sum over a count: a batch is cut into ", step.micro_batches,
                           " micro-batches, and it is the mean over those, not that of the whole"));
  if (step.sync_batchnorm && !accumulation.lock_step)
    notes.emplace_back("--sync-batchnorm changes nothing: no BatchNormalization of the model takes the statistics of a batch");
}

/// A forward graph with its loss and gradients, and with updates where there is an optimizer.
ModelGraph differentiated(ModelGraph made, const Model& model, const GraphOptions& options, const LossSpec& loss,
                          const std::optional<Optimizer>& given, const CompileHooks& hooks) {
  return timed(hooks, "differentiate", [&] {
    const std::optional<Optimizer> optimizer = of_run(given, options.step.learning_rate);
    SettledStep step = optimizer ? settled(options.step, *optimizer, made.model, made.graph) : SettledStep();
    made.groups = std::move(step.groups);
    const passes::TrainingRequest request{.loss = settled(loss, made),
                                          .optimizer = optimizer,
                                          .trained = trained_names(made.model),
                                          .arrays = found_arrays(model, options),
                                          .scaling = scaling_of(options),
                                          .step = std::move(step.options),
                                          .ranks = options.step.ranks,
                                          .sharding = options.step.sharding,
                                          .bucket_bytes = options.step.bucket_bytes,
                                          .loss_chunks = options.step.loss_chunks,
                                          .shards = options.step.micro_batches};
    made.accumulation = passes::prepare(made.graph, pass_options(options, hooks), &request);
    if (made.accumulation) {
      add_notes(made.model.repairs, *made.accumulation, options.step);
      const std::string node = dependence_of_outputs(model, options, made.target.bound.outputs);
      if (!node.empty())
        made.model.repairs.push_back(concat(
            "node '", node, "' may make a row depend on others or on its number: with --micro-batches ", options.step.micro_batches,
            " those are of a micro-batch, and loss and gradients then not those of the whole batch"));
    }
    made.most_memory = options.step.most_memory;
    return std::move(made);
  });
}

}  // namespace

std::vector<std::string> trained_names(const frontend::ImportedModel& model) {
  std::vector<std::string> names;
  for (const frontend::Parameter& parameter : model.parameters)
    if (parameter.trained) names.push_back(parameter.name);
  return names;
}

ModelGraph inference_graph(const Model& model, const GraphOptions& options, const CompileHooks& hooks) {
  frontend::ImportOptions import = import_options(model, options);
  import.training_form = options.training_form;
  import.loss_outputs = options.loss_outputs;
  ModelGraph made = imported(model, import, options, hooks);
  made.graph.remove_updates(options.training_form ? std::optional(ir::StateRole::counter) : std::nullopt);
  made.graph.remove_dead();
  if (mixes(options)) passes::prepare(made.graph, pass_options(options, hooks));
  made.graph.set_name("forward");
  return made;
}

EvaluationGraph evaluation_graph(const Model& model, const GraphOptions& options, const LossSpec& loss,
                                 const std::vector<passes::MetricSpec>& metrics, const CompileHooks& hooks) {
  require_other_input(model, loss);
  GraphOptions inference = options;
  inference.loss_outputs = passes::possible_outputs(loss);
  for (const passes::MetricSpec& metric : metrics)
    for (std::string& name : passes::possible_outputs(metric)) inference.loss_outputs->push_back(std::move(name));
  EvaluationGraph evaluation{.made = inference_graph(model, inference, hooks), .plan = {}, .row_dependence = {}};
  ModelGraph& made = evaluation.made;
  add_target(made, model, options, loss);
  evaluation.row_dependence = row_dependence(made.graph);
  evaluation.plan =
      passes::attach_evaluation(made.graph, settled(loss, made), metrics, found_arrays(model, options), &made.target.bound);
  passes::chunk_outputs(made.graph, options.step.loss_chunks);
  return evaluation;
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
  ModelGraph made = trainable(model, options, loss, hooks);
  leave_unreached(made, model.name());
  return differentiated(std::move(made), model, options, loss, optimizer, hooks);
}

ModelGraph gradient_graph(const Model& model, const GraphOptions& options, const LossSpec& loss, const CompileHooks& hooks) {
  GraphOptions whole = options;  // of the batch at once
  whole.step.micro_batches = 1;
  return differentiated(trainable(model, whole, loss, hooks), model, whole, loss, std::nullopt, hooks);
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

std::vector<StepGraph> step_graphs(ModelGraph& made, const CompileHooks& hooks) {
  std::vector<StepGraph> graphs;
  CompileHooks whole = hooks;
  whole.most_memory = made.most_memory;
  graphs.push_back({std::move(made.graph), kTrainingProgram, whole});
  if (!made.accumulation) return graphs;
  CompileHooks sums = hooks;  // copies stay what they are: one launch for all (passes/training/accumulate.h)
  sums.disabled.emplace_back("simplify");
  // Casts of parameters and gradients go by buckets too, so that exchanges run beside the rest of a pass.
  CompileHooks by_bucket = hooks;
  by_bucket.horizontal_bytes = passes::DistributeOptions().bucket_bytes;
  by_bucket.most_memory = made.most_memory;
  graphs.push_back(
      {std::move(made.accumulation->shard), made.accumulation->lock_step ? kLockStepProgram : kShardProgram, by_bucket});
  if (made.accumulation->count) graphs.push_back({std::move(*made.accumulation->count), kCountProgram, hooks});
  for (std::size_t i = 0; i < made.accumulation->combine.size(); ++i)
    graphs.push_back({std::move(made.accumulation->combine[i]), concat(kCombineProgram, i), sums});
  const passes::Accumulation& parts = *made.accumulation;
  std::vector<ir::Graph>& totals = made.accumulation->totals;
  for (std::size_t i = 0; i < totals.size(); ++i)
    graphs.push_back({std::move(totals[i]), total_program(i, static_cast<std::size_t>(parts.nodes.count)), sums});
  if (made.accumulation->count_exchange)
    graphs.push_back({std::move(*made.accumulation->count_exchange), kCountExchangeProgram, hooks});
  const auto add_numbered = [&](std::vector<ir::Graph>& numbered, std::string_view name, const CompileHooks& how) {
    for (std::size_t i = 0; i < numbered.size(); ++i) graphs.push_back({std::move(numbered[i]), concat(name, i), how});
  };
  add_numbered(made.accumulation->bucket_totals, kBucketTotalProgram, sums);
  add_numbered(made.accumulation->exchanges, kExchangeProgram, hooks);
  add_numbered(made.accumulation->gathers, kGatherProgram, hooks);
  return graphs;
}

std::vector<runtime::Program> compile_step(ModelGraph made, const runtime::Target& target, const CompileHooks& hooks,
                                           const codegen::ProgramLimits& limits) {
  std::vector<runtime::Program> programs;
  const bool in_shards = made.accumulation.has_value();
  for (StepGraph& part : step_graphs(made, hooks)) {
    programs.push_back(compile_graph(std::move(part.graph), target, part.hooks, limits));
    programs.back().name = part.program;
    // Ranks update shares of the arrays that one process updates whole (passes/training/share_updates.h).
    if (in_shards && part.program == kTrainingProgram) programs.back().contracts = false;
  }
  return programs;
}

LossSpec settled(LossSpec loss, const ModelGraph& made) {
  if (!made.target.output.empty()) loss.output = made.target.output;
  return loss;
}

std::vector<passes::MetricSpec> metrics_of(std::span<const std::string> texts, const LossSpec& loss) {
  const std::vector<passes::MetricSpec> defaults = passes::default_metrics(loss);
  if (texts.empty()) return defaults;
  std::vector<passes::MetricSpec> metrics;
  for (const std::string& text : texts) {
    passes::MetricSpec metric = passes::parse_metric(text, loss.output);
    if (!defaults.empty()) metric.takes_scores = defaults[0].takes_scores;
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

std::vector<std::string> loss_arrays(const Model& model, const LossSpec& loss, std::span<const passes::MetricSpec> metrics) {
  std::vector<std::string> possible = passes::possible_arrays(loss), arrays;
  for (const passes::MetricSpec& metric : metrics)
    for (std::string& name : passes::possible_arrays(metric)) possible.push_back(std::move(name));
  std::vector<frontend::ValueInfo> values = model.inputs();
  if (const frontend::OnnxFile* file = onnx_file(model))
    std::ranges::copy_if(file->outputs, std::back_inserter(values),
                         [](const frontend::ValueInfo& output) { return output.name != passes::kLabelArray; });
  for (std::string& name : possible)
    if (std::ranges::find(values, name, &frontend::ValueInfo::name) == values.end() &&
        std::ranges::find(arrays, name) == arrays.end())
      arrays.push_back(std::move(name));
  return arrays;
}

}  // namespace gcomp::driver
