#include "gcomp/compiled_model.h"

#include "gcomp/graph_index_limits.h"
#include "gcomp/saved_model.h"

namespace gcomp {
namespace {

/// Adds the weights of the states that the artifact's programs bind.
void add_weights(runtime::Artifact& artifact, const frontend::Model& model) {
  for (const runtime::Program& program : artifact.programs) {
    for (const runtime::State& state : program.states) {
      const std::string& name = program.buffers[static_cast<std::size_t>(state.buffer)].name;
      if (const auto found = model.weights.find(name); found != model.weights.end()) artifact.weights.emplace(name, found->second);
    }
  }
}

/// Machine code for this kind of processor.
void add_cpu_binaries(runtime::Artifact& artifact, const runtime::DeviceOptions& options) {
  const auto device = runtime::open_device(runtime::TargetKind::cpu, options);
  for (const runtime::Program& program : artifact.programs) {
    const auto executable = device->load(program, device->allocate_states());
    const std::span<const std::byte> binary = executable->kernel_binary();
    artifact.binaries.emplace_back(kernel_binary_name(program), std::vector(binary.begin(), binary.end()));
  }
}

/// Cubins, where NVRTC is found; without it the artifact carries the kernels' text alone, and that is said.
void add_cubins(runtime::Artifact& artifact, const runtime::DeviceOptions& options) {
  try {
    for (const runtime::Program& program : artifact.programs)
      artifact.binaries.emplace_back(kernel_binary_name(program), runtime::compile_cubins(program, options));
  } catch (const DeviceError& error) {
    artifact.binaries.clear();
    if (options.log) options.log(concat("the artifact carries kernels as text only: ", error.what()));
  }
}

}  // namespace

CompiledModel compile_model(const Model& model, const ArtifactOptions& options) {
  CompiledModel compiled;
  runtime::Artifact& artifact = compiled.artifact;
  SavedModel saved{.model = model.name(),
                   .loss = options.loss,
                   .axis = -1,
                   .classes = 0,
                   .learning_rate = options.learning_rate,
                   .trained = {},
                   .weights = {},
                   .outputs = {},
                   .loss_output = 0,
                   .has_label = false,
                   .limits = {},
                   .row_dependence = {},
                   .position = {},
                   .original = {}};
  GraphOptions graph = options.graph;
  graph.target = options.target;
  LossSpec loss;
  if (!options.loss.empty()) {
    if (!graph.precision) graph.precision = DType::f32;
    loss = passes::parse_loss(options.loss, options.output);
    ModelGraph made = training_graph(model, graph, loss, options.optimizer, options.hooks);
    saved.trained = trained_names(made.model);
    saved.has_label = made.target.has_value();
    if (made.target) {
      saved.classes = made.target->output.classes;
      saved.axis = made.target->label.axis;
    }
    loss = settled(loss, made);
    compiled.output = loss.output;
    graph.loss_output = loss.output;
    artifact.programs.push_back(compile_graph(std::move(made.graph), options.target, options.hooks));
    artifact.programs.back().name = kTrainingProgram;
    add_weights(artifact, made.model);
    for (const auto& [name, tensor] : made.model.weights) saved.weights.push_back(name);
    if (model.onnx()) saved.original = keep_original(*model.onnx(), made.model, options.keep_model, artifact);
    compiled.model = std::move(made.model);
  }
  ModelGraph made = inference_graph(model, graph, options.hooks);
  saved.limits = index_limits(made.graph);
  saved.row_dependence = row_dependence(made.graph);
  saved.outputs = made.model.outputs;
  if (options.loss.empty())
    for (const auto& [name, tensor] : made.model.weights) saved.weights.push_back(name);
  artifact.programs.push_back(compile_graph(std::move(made.graph), options.target, options.hooks));
  artifact.programs.back().name = kForwardProgram;
  add_weights(artifact, made.model);
  if (options.loss.empty()) compiled.model = std::move(made.model);
  else saved.loss_output = loss_output(loss, saved.outputs);
  compiled.model.weights.clear();
  store(saved, artifact);
  if (options.target.kind == runtime::TargetKind::cpu) add_cpu_binaries(artifact, options.device_options);
  else add_cubins(artifact, options.device_options);
  return compiled;
}

}  // namespace gcomp
