// From a model to programs: shapes bound, graph made, lowered, code generated. No device is touched here.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/program_limits.h"
#include "gcomp/driver/adaptation.h"
#include "gcomp/driver/input_shapes.h"
#include "gcomp/driver/lora.h"
#include "gcomp/driver/loss_target.h"
#include "gcomp/driver/step_settings.h"
#include "gcomp/input_form.h"
#include "gcomp/limits.h"
#include "gcomp/model.h"
#include "ir/memory_plan.h"
#include "passes/training/accumulate.h"
#include "passes/training/metrics/metric.h"
#include "passes/training/training.h"
#include "runtime/program.h"

namespace gcomp::codegen {
struct StepCost;
}

namespace gcomp::driver {

/// What a caller may watch or switch off. All functions may be empty.
struct CompileHooks {
  /// A named part of the work begins.
  std::function<void(std::string_view phase)> begin;
  /// A named part of the work and its seconds, in order.
  std::function<void(std::string_view phase, double seconds)> phase;
  /// Each pass, after it ran.
  std::function<void(std::string_view pass, const ir::Graph&, bool changed, double seconds)> pass;
  /// What each step of a program does (codegen/step_cost.h), for each program in the order of their generation.
  std::function<void(const std::vector<codegen::StepCost>&)> costs;
  /// gcomp failed on this graph, which is as it was before the passes. The error follows.
  std::function<void(const ir::Graph&, const std::string& error)> internal_error;
  std::vector<std::string> disabled;  ///< passes to leave out
  /// What one launch over many parameters makes at most (passes::FuseOptions); 0 for any amount.
  std::int64_t horizontal_bytes = 0;
  std::optional<std::int64_t> most_memory;  ///< of a program that computes gradients, as in passes::PipelineOptions
};

/// What decides a model's graph.
struct GraphOptions {
  ShapeRequest shapes;
  /// All floats of the model compute as this; without it, as the file says. bf16 and f16 mean mixed precision: everything is kept
  /// in f32, and what bears it computes in 16 bits (passes/training/autocast.h).
  std::optional<DType> precision;
  /// f16: what the loss is multiplied by before it is differentiated; without it, what PyTorch's GradScaler arrives at.
  std::optional<double> loss_scale;
  std::vector<std::string> freeze, train;  ///< globs over parameters; the more exact wins
  std::vector<std::string> tie, untie;
  std::vector<InputForm> input_forms;
  std::string preprocessing, number_names;  ///< kept with the model
  std::string batchnorm_variance;
  std::int64_t seed = 0;  ///< of Dropout and other random operators
  /// inference_graph, beside a training step: names among which are the outputs that its loss looks at. Others that cannot be
  /// computed are left out.
  std::optional<std::vector<std::string>> loss_outputs;
  bool training_form = false;  ///< inference_graph: BatchNormalization by the batch, Dropout live, whatever form the file has
  StepSettings step;           ///< of a training step
  LoraSettings lora;           ///< adapters, which alone train then
  ImportLimits limits;
  ProgramLimits program_limits;
  /// Whose code generation the graph is for: where it has kernels for attention, that is differentiated as one op.
  runtime::Target target;
};

using passes::LossSpec;
using Optimizer = passes::OptimizerSpec;

/// A graph before the passes, with the model it came from (whose own graph is empty).
struct ModelGraph {
  ir::Graph graph;
  frontend::ImportedModel model;
  LossTarget target;                                      ///< of a training step and of an evaluation
  std::vector<GroupSummary> groups = {};                  ///< of a training step's parameters
  std::optional<passes::Accumulation> accumulation = {};  ///< of a training step with micro-batches: `graph` is what is done once
  std::optional<Adaptation> lora = {};                    ///< where GraphOptions ask for adapters
  std::optional<std::int64_t> most_memory = {};           ///< as in StepSettings
};

/// Outputs are the model's. In inference form unless the options ask for training form; the graph then updates its counters alone,
/// so that each run draws anew.
ModelGraph inference_graph(const Model& model, const GraphOptions& options, const CompileHooks& hooks = {});
/// What makes rows of a forward pass depend on each other; "" where nothing does, and where that cannot be told: inputs have no
/// number of rows in common, or one.
std::string row_dependence(const ir::Graph& forward);
/// Inputs are the model's, the arrays of the data that the loss reads, and the learning rate; outputs are those of
/// passes::make_training_step(). All but the model's have roles. Outputs that the loss does not look at and that cannot be computed
/// are left out. Throws UserError where nothing is trained, and with exit 4 and every node concerned where the loss cannot be
/// differentiated.
ModelGraph training_graph(const Model& model, const GraphOptions& options, const LossSpec& loss, const Optimizer& optimizer,
                          const CompileHooks& hooks = {});
/// What evaluates the model: the inference form with the terms of the loss and the metrics for outputs.
struct EvaluationGraph {
  ModelGraph made;
  passes::EvaluationPlan plan;
  std::string row_dependence;
};
EvaluationGraph evaluation_graph(const Model& model, const GraphOptions& options, const LossSpec& loss,
                                 const std::vector<passes::MetricSpec>& metrics, const CompileHooks& hooks = {});
/// Outputs are the loss, then the gradient of every trained parameter in the order of trained_names().
ModelGraph gradient_graph(const Model& model, const GraphOptions& options, const LossSpec& loss, const CompileHooks& hooks = {});

/// States of the trained parameters, in the model's order.
std::vector<std::string> trained_names(const frontend::ImportedModel& model);

/// A lowered graph and its place in memory: what --emit ir and plan print.
struct LoweredGraph {
  ir::Graph graph;
  ir::MemoryPlan plan;
};
LoweredGraph lower_graph(ir::Graph graph, const runtime::Target& target, const CompileHooks& hooks = {});

/// Throws UserError as codegen::generate() does.
runtime::Program generate_program(const LoweredGraph& lowered, const runtime::Target& target, const CompileHooks& hooks = {},
                                  const codegen::ProgramLimits& limits = {});

/// The loss with what the training graph has settled, so that no later step decides otherwise: the output that it looks at.
LossSpec settled(LossSpec loss, const ModelGraph& made);
/// The metrics by their texts, which look at what the loss looks at; without any, passes::default_metrics().
std::vector<passes::MetricSpec> metrics_of(std::span<const std::string> texts, const LossSpec& loss);
/// Arrays of the data that the loss and the metrics read beside the model's inputs, by the names in them.
std::vector<std::string> loss_arrays(const Model& model, const LossSpec& loss, std::span<const passes::MetricSpec> metrics = {});

/// The programs of a training step by their names (gcomp/driver/saved_model.h), kTrainingProgram first.
std::vector<runtime::Program> compile_step(ModelGraph made, const runtime::Target& target, const CompileHooks& hooks = {},
                                           const codegen::ProgramLimits& limits = {});
/// The graphs of the same, each with what it is lowered with.
struct StepGraph {
  ir::Graph graph;
  std::string program;
  CompileHooks hooks;
};
std::vector<StepGraph> step_graphs(ModelGraph& made, const CompileHooks& hooks = {});

/// lower_graph(), and of what it gives generate_program().
runtime::Program compile_graph(ir::Graph graph, const runtime::Target& target, const CompileHooks& hooks = {},
                               const codegen::ProgramLimits& limits = {});

}  // namespace gcomp::driver
