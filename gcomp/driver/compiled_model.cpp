#include "gcomp/driver/compiled_model.h"

#include "gcomp/driver/describe_model.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/saved_model.h"
#include "runtime/backend.h"

namespace gcomp::driver {
namespace {

/// Adds the weights of the states that the artifact's programs bind.
void add_weights(runtime::Artifact& artifact, const frontend::ImportedModel& model) {
  for (const runtime::Program& program : artifact.programs) {
    for (const runtime::State& state : program.states) {
      const std::string& name = program.buffers[static_cast<std::size_t>(state.buffer)].name;
      if (artifact.weights.contains(name)) continue;
      if (const Tensor* values = model.weights.find(name)) artifact.weights.emplace(name, *values);
    }
  }
}

/// Adds the program that evaluates, and what it says to `saved`.
void add_evaluation(runtime::Artifact& artifact, SavedModel& saved, const Model& model, const GraphOptions& graph,
                    const LossSpec& loss, const ArtifactOptions& options) {
  std::vector<passes::MetricSpec> metrics = metrics_of(options.metrics, loss);
  EvaluationGraph evaluation = evaluation_graph(model, graph, loss, metrics, options.hooks);
  describe_evaluation(saved, evaluation, metrics);
  artifact.programs.push_back(compile_graph(std::move(evaluation.made.graph), options.target, options.hooks, graph.program_limits));
  artifact.programs.back().name = kEvaluationProgram;
}

void add_binaries(runtime::Artifact& artifact, const runtime::Target& target, const runtime::DeviceOptions& options) {
  std::vector<std::vector<std::byte>> binaries = runtime::backend_of(target).compile(artifact.programs, options);
  for (std::size_t i = 0; i < binaries.size(); ++i)
    artifact.binaries.emplace_back(kernel_binary_name(artifact.programs[i]), std::move(binaries[i]));
}

}  // namespace

CompiledModel compile_model(const Model& model, const ArtifactOptions& options) {
  if (const frontend::OnnxFile* file = onnx_file(model); file && !options.loss.empty() && options.keep_model == KeepModel::whole)
    check_keeps_whole(*file->source);
  const auto kept = keep_data(model);
  CompiledModel compiled;
  runtime::Artifact& artifact = compiled.artifact;
  GraphOptions graph = options.graph;
  graph.target = options.target;
  LossSpec loss;
  SavedModel saved = describe_model(model, options.loss, options.learning_rate, nullptr);
  if (!options.loss.empty()) {
    if (!graph.precision) graph.precision = DType::f32;
    loss = read_loss(options.loss, options.output);
    ModelGraph made = training_graph(model, graph, loss, options.optimizer, options.hooks);
    saved = describe_model(model, options.loss, options.learning_rate, &made);
    for (const GroupSummary& group : made.groups) saved.groups.push_back({group.text, group.rate, group.tensors, group.elements});
    loss = settled(loss, made);
    compiled.output = loss.output;
    graph.loss_outputs = passes::possible_outputs(loss);
    saved.micro_batches = graph.step.micro_batches;
    frontend::ImportedModel imported = std::move(made.model);
    artifact.programs = compile_step(std::move(made), options.target, options.hooks, graph.program_limits);
    add_weights(artifact, imported);
    if (const frontend::OnnxFile* file = onnx_file(model))
      saved.original = keep_original(*file, imported, options.keep_model, artifact);
    compiled.model = std::move(imported);
  }
  saved.input_forms = graph.input_forms;
  saved.preprocessing = graph.preprocessing;
  saved.number_names = graph.number_names;
  saved.position.seed = static_cast<std::uint64_t>(graph.seed);
  keep_choices(saved, options.device_options);
  ModelGraph made = inference_graph(model, graph, options.hooks);
  describe_forward(saved, model, graph, made);
  artifact.programs.push_back(compile_graph(std::move(made.graph), options.target, options.hooks, graph.program_limits));
  artifact.programs.back().name = kForwardProgram;
  add_weights(artifact, made.model);
  if (options.loss.empty()) compiled.model = std::move(made.model);
  else add_evaluation(artifact, saved, model, graph, loss, options);
  compiled.model.weights.clear();
  store(saved, artifact);
  add_binaries(artifact, options.target, options.device_options);
  return compiled;
}

}  // namespace gcomp::driver
