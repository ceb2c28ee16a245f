#include "gcomp/driver/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gcomp/driver/averaged_program.h"
#include "gcomp/driver/describe_model.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/optimizer_text.h"
#include "gcomp/driver/options.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/nearest.h"
#include "passes/training/average_parameters.h"
#include "runtime/backend.h"

namespace gcomp {
namespace {

/// In import's terms: training always has a float type, so that half-precision weights get masters.
driver::GraphOptions with_precision(driver::GraphOptions options) {
  if (!options.precision) options.precision = DType::f32;
  return options;
}

void write_missing(driver::WholeStates& states, const frontend::ImportedModel& model) {
  for (const std::string& name : states.unwritten()) states.write(name, model.weights.at(name));
}

}  // namespace

void Trainer::Impl::open_device(const runtime::DeviceChoice& choice, const DeviceOptions& device_options) {
  device_reason = choice.reason;
  device = runtime::open_device(choice, device_options);
  memory = device->allocate_states();
}

void Trainer::Impl::adopt_step(std::vector<driver::StepProgram> programs, std::vector<passes::ShardedState> sharded) {
  driver::share_choices(*device, options.device_options.communicator, [&] { driver::time_products(*device, programs); });
  step = driver::StepPrograms(*device, memory, std::move(programs), saved.micro_batches,
                              driver::rank_of(options.device_options, options.graph.step.sharding));
  states = driver::WholeStates(memory, std::move(sharded), options.device_options.communicator, options.graph.step.sharding);
  if (driver::keeps_average(step.step().program(), saved.trained)) weights = Weights::averaged;
}

Trainer::Impl::Impl(const Model& origin, const driver::TrainOptions& given) : source(origin), options(given) {
  options.graph = with_precision(given.graph);
  options.graph.step.ranks = driver::rank_of(given.device_options).ranks;
  if (given.batch > 0) options.graph.shapes.batch = given.batch;
  loss = driver::read_loss(given.loss, given.output);
  driver::metrics_of(given.metrics, loss);  // wrong ones are told now
  check_user(std::isfinite(given.learning_rate) && given.learning_rate >= 0, "a learning rate of ", given.learning_rate,
             "; wanted a finite number of 0 or more");
  if (const frontend::OnnxFile* file = driver::onnx_file(origin); file && given.keep_model == KeepModel::whole)
    driver::check_keeps_whole(*file->source, given.largest_onnx);
  open_device(runtime::choose_device(given.device, given.device_options), given.device_options);
  options.graph.target = device->target();
  const auto kept = driver::keep_data(origin);
  driver::ModelGraph made = driver::training_graph(origin, options.graph, loss, given.optimizer, given.hooks);
  saved = driver::describe_model(origin, given.loss, given.learning_rate, &made);
  saved.input_forms = options.graph.input_forms;
  saved.preprocessing = options.graph.preprocessing;
  saved.number_names = options.graph.number_names;
  driver::keep_choices(saved, given.device_options);
  saved.position.seed = static_cast<std::uint64_t>(given.graph.seed);
  for (const driver::GroupSummary& group : made.groups)
    saved.groups.push_back({group.text, group.rate, group.tensors, group.elements});
  model = std::move(made.model);
  loss = driver::settled(loss, made);
  other_outputs = made.target.others;
  saved.micro_batches = given.graph.step.micro_batches;
  std::vector<driver::StepProgram> programs;
  std::vector<passes::ShardedState> sharded;
  if (made.accumulation) sharded = made.accumulation->sharded;
  for (runtime::Program& program : driver::compile_step(std::move(made), device->target(), given.hooks, given.graph.program_limits))
    programs.push_back({std::move(program)});
  adopt_step(std::move(programs), std::move(sharded));
  saved.tiles = driver::sums_by_tiles(step, device->description());
  write_missing(states, model);
  model.weights.clear();
}

Trainer::Impl::Impl(const Path& path, const DeviceOptions& device_options, DeviceRequest request, const ArtifactTrust& trust) {
  const runtime::Artifact artifact = runtime::read_artifact(path.string(), trust);
  saved = driver::saved_model(artifact, path.string());
  const runtime::Program* trained_step = driver::find_program(artifact, driver::kTrainingProgram);
  const runtime::Program* inference = driver::find_program(artifact, driver::kForwardProgram);
  check_user(trained_step && inference, "'", path.string(), "' holds no training step; make one with gcomp compile --train");
  loss = passes::parse_loss(saved.loss);
  artifact_path = path;
  whole_model = artifact.model;
  options.loss = saved.loss;
  options.learning_rate = saved.learning_rate;
  driver::require_device(request, trained_step->target, path.string());
  const DeviceOptions used = driver::with_choices(device_options, saved);
  open_device({&runtime::backend_of(trained_step->target), concat("compiled for ", runtime::to_string(trained_step->target))},
              used);
  try {
    adopt_step(driver::step_programs(artifact));
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what()), error.code()); }
  forward = std::make_unique<driver::Forward>(device->load(*inference, memory, driver::kernel_binary(artifact, *inference)),
                                              saved.outputs, saved.limits, saved.row_dependence);
  if (const runtime::Program* evaluating = driver::find_program(artifact, driver::kEvaluationProgram)) try {
      evaluator = std::make_unique<driver::Evaluator>(
          device->load(*evaluating, memory, driver::kernel_binary(artifact, *evaluating)), driver::evaluated_model(saved));
    } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what()), error.code()); }
  for (const auto& [name, tensor] : artifact.weights) memory->write(name, tensor);
  const std::vector<std::string> missing = memory->unwritten();
  check_user(missing.empty(), "'", path.string(), "' lacks the states ", listing(missing));
  for (std::string& note : driver::note_choices(saved, device_options, *device, path.string()))
    model.repairs.push_back(std::move(note));
  driver::keep_choices(saved, used);
  saved.tiles = driver::sums_by_tiles(step, device->description());
}

/// Copies the inputs of the executable that are data from the batch.
void Trainer::Impl::fill(runtime::Executable& executable, const Batch& batch) {
  for (const std::size_t i : driver::data_inputs(executable.program())) {
    const std::string& name = executable.input_buffer(i).name;
    const TensorType& type = executable.input_type(i);
    const TensorView& array = driver::find_array(batch, name);
    check_user(array.type().shape == type.shape, "array '", name, "' is ", to_string(array.type()), ", wanted ", to_string(type));
    if (const driver::LabelLimit* limit = label_limit(name)) driver::check_labels(array, *limit, other_outputs);
    driver::copy_rows(name, array, 0, type.shape.empty() ? 1 : type.shape[0], type, executable.input(i));
  }
}

std::optional<driver::IndexFault> Trainer::Impl::find_index_fault(runtime::Executable& executable, int age) const {
  for (const driver::IndexLimit& limit : saved.limits) {
    const std::size_t input = executable.input_index(limit.input);
    if (auto fault = driver::find_index_fault(limit, executable.input_type(input), executable.input_of_run(input, age)))
      return fault;
  }
  return std::nullopt;
}

void Trainer::Impl::naming_index_faults(runtime::Executable& executable, int age, const std::function<void()>& work) const {
  try {
    work();
  } catch (const UserError&) {
    if (const auto fault = find_index_fault(executable, age)) throw UserError(to_string(*fault));
    throw;
  }
}

runtime::Program Trainer::Impl::forward_program(std::int64_t batch) {
  driver::GraphOptions graph_options = options.graph;
  if (graph_options.shapes.batch) graph_options.shapes.batch = batch;
  graph_options.loss_outputs = passes::possible_outputs(loss);
  driver::ModelGraph made = driver::inference_graph(*source, graph_options, options.hooks);
  driver::describe_forward(saved, *source, graph_options, made);
  runtime::Program program =
      driver::compile_graph(std::move(made.graph), device->target(), options.hooks, options.graph.program_limits);
  program.name = driver::kForwardProgram;
  memory->bind(program);
  write_missing(states, made.model);
  return program;
}

driver::Forward& Trainer::Impl::used_forward() {
  if (weights == Weights::trained) {
    forward_pass();
    refresh_copies();
    return *forward;
  }
  if (!averaged) {
    runtime::Executable& plain = forward_pass().executable();
    averaged = std::make_unique<driver::Forward>(
        device->load(driver::with_averages(plain.program(), saved.trained), memory, plain.kernel_binary()), saved.outputs,
        saved.limits, saved.row_dependence);
  }
  refresh_copies();
  return *averaged;
}

void Trainer::Impl::refresh_copies() {
  states.gather_copies(saved.trained);
  for (const std::string& name : saved.trained) states.gather_copies(std::vector{passes::average_name(name)});
}

driver::Forward& Trainer::Impl::forward_pass() {
  if (!forward) {
    runtime::Program program = forward_program(options.graph.shapes.batch.value_or(0));  // says what `saved` then holds
    forward = std::make_unique<driver::Forward>(device->load(std::move(program), memory), saved.outputs, saved.limits,
                                                saved.row_dependence);
  }
  return *forward;
}

driver::Evaluator& Trainer::Impl::evaluation() {
  if (evaluator) return *evaluator;
  check_user(source.has_value(), "'", artifact_path.string(), "' holds no program that evaluates; compile it again");
  const std::vector<passes::MetricSpec> metrics = driver::metrics_of(options.metrics, loss);
  driver::EvaluationGraph made = driver::evaluation_graph(*source, options.graph, loss, metrics, options.hooks);
  driver::describe_evaluation(saved, made, metrics);
  runtime::Program program =
      driver::compile_graph(std::move(made.made.graph), device->target(), options.hooks, options.graph.program_limits);
  program.name = driver::kEvaluationProgram;
  memory->bind(program);
  write_missing(states, made.made.model);
  evaluator = std::make_unique<driver::Evaluator>(device->load(std::move(program), memory), driver::evaluated_model(saved));
  return *evaluator;
}

driver::Evaluator& Trainer::Impl::used_evaluation() {
  driver::Evaluator& plain = evaluation();
  if (weights == Weights::trained) {
    refresh_copies();
    return plain;
  }
  if (!averaged_evaluator) {
    runtime::Executable& executable = plain.executable();
    averaged_evaluator = std::make_unique<driver::Evaluator>(
        device->load(driver::with_averages(executable.program(), saved.trained), memory, executable.kernel_binary()),
        driver::evaluated_model(saved));
  }
  refresh_copies();
  return *averaged_evaluator;
}

const driver::LabelLimit* Trainer::Impl::label_limit(std::string_view array) const {
  const auto found = std::ranges::find(saved.labels, array, &driver::LabelLimit::array);
  return found == saved.labels.end() ? nullptr : &*found;
}

/// Null where training alone has outputs that the loss looks at: nothing evaluates such a model.
runtime::Executable* Trainer::Impl::saved_evaluation() {
  const auto in_inference = [&](const std::string& output) { return std::ranges::count(saved.outputs, output) > 0; };
  if (!source && !saved.evaluation) return nullptr;
  const bool whole = !source || std::ranges::all_of(model.outputs, in_inference);
  try {
    return &evaluation().executable();
  } catch (const UserError&) {
    if (whole) throw;
    return nullptr;
  }
}

runtime::Artifact Trainer::Impl::artifact() {
  runtime::Artifact artifact;
  driver::Forward& inference = forward_pass();
  runtime::Executable* evaluating = saved_evaluation();
  const auto add = [&](const runtime::Executable& executable) {
    artifact.programs.push_back(executable.program());
    const std::span<const std::byte> binary = executable.kernel_binary();
    artifact.binaries.emplace_back(driver::kernel_binary_name(executable.program()), std::vector(binary.begin(), binary.end()));
  };
  for (const runtime::Executable* executable : step.all()) add(*executable);
  add(inference.executable());
  if (evaluating) add(*evaluating);
  for (const runtime::StateEntry& entry : memory->entries())
    if (entry.role != runtime::StateRole::scratch) artifact.weights.emplace(entry.name, memory->read(entry.name));
  saved.learning_rate = options.learning_rate;
  saved.timed = runtime::to_text(device->timed_choices());
  const frontend::OnnxFile* file = source ? driver::onnx_file(*source) : nullptr;
  if (file && !saved.original) saved.original = driver::keep_original(*file, model, options.keep_model, artifact);
  if (artifact.model.empty()) artifact.model = whole_model;
  if (artifact.model.empty() && saved.original && options.keep_model == KeepModel::whole && model.source)
    driver::embed_original(*saved.original, model, artifact);
  whole_model = artifact.model;
  driver::store(saved, artifact);
  return artifact;
}

namespace driver {

namespace {

GraphOptions graph_of(const gcomp::TrainOptions& options, const Optimizer& optimizer) {
  const auto standard = [](const Optional<double>& value) { return value ? std::optional(*value) : std::nullopt; };
  GraphOptions graph = graph_options(options.graph);
  graph.step = {.groups = options.groups,
                .clip_norm = standard(options.clip_norm),
                .clip_value = standard(options.clip_value),
                .average = standard(options.ema),
                .skip_non_finite = options.skip_non_finite,
                .skip_spikes = options.skip_spikes,
                .micro_batches = options.micro_batches,
                .sharding = parse_sharding(options.zero),
                .bucket_bytes = options.bucket_bytes,
                .sync_batchnorm = options.sync_batchnorm,
                .most_memory = standard(options.most_memory),
                .loss_chunks = options.loss_chunks,
                .learning_rate = options.learning_rate.value_or(optimizer.learning_rate())};
  graph.shapes.data = {options.arrays.begin(), options.arrays.end()};
  graph.lora = {.globs = options.lora, .rank = options.lora_rank, .alpha = options.lora_alpha};
  if (!options.lora_adapter.empty())
    graph.lora.adapter = std::make_shared<const AdapterFile>(read_adapter(options.lora_adapter.string()));
  check(graph.lora);
  return graph;
}

}  // namespace

TrainOptions train_options(const gcomp::TrainOptions& options) {
  const Optimizer optimizer = optimizer_of(options.optimizer);
  return {.loss = options.loss,
          .output = options.output,
          .metrics = options.metrics,
          .optimizer = optimizer,
          .learning_rate = options.learning_rate.value_or(optimizer.learning_rate()),
          .batch = options.batch,
          .graph = graph_of(options, optimizer),
          .device = options.device,
          .device_options = options.device_options,
          .hooks = compile_hooks(options.hooks),
          .keep_model = options.keep_model,
          .export_form = options.export_form,
          .export_preprocessing = options.export_preprocessing};
}

Trainer make_trainer(const Model& model, const TrainOptions& options) { return Trainer(Owned(new Trainer::Impl(model, options))); }

const frontend::ImportedModel& imported_model(const Trainer& trainer) { return trainer.impl().model; }
const std::vector<LossOutput>& other_outputs(const Trainer& trainer) { return trainer.impl().other_outputs; }
const std::optional<Adaptation>& adaptation_of(const Trainer& trainer) { return trainer.impl().saved.lora; }
const std::vector<LabelLimit>& label_limits(const Trainer& trainer) { return trainer.impl().saved.labels; }
std::vector<std::string> evaluation_arrays(Trainer& trainer) {
  runtime::Executable& executable = trainer.impl().evaluation().executable();
  std::vector<std::string> names;
  for (const std::size_t i : data_inputs(executable.program())) names.push_back(executable.input_buffer(i).name);
  return names;
}

CollectedStates::CollectedStates(Trainer& trainer) : trainer_(trainer) {
  Trainer::Impl& impl = trainer.impl();
  std::vector<std::string> names = impl.saved.trained;
  for (const std::string& name : impl.saved.trained) names.push_back(passes::average_name(name));
  impl.states.collect(names);
}
CollectedStates::~CollectedStates() { trainer_.impl().states.forget(); }

void prepare_artifact(Trainer& trainer) {
  trainer.impl().forward_pass();
  trainer.impl().evaluation();
}

runtime::Executable& step_of(Trainer& trainer) { return trainer.impl().step.step(); }
const StepPrograms& step_programs_of(Trainer& trainer) { return trainer.impl().step; }

std::vector<frontend::FileStamp> model_files(const Trainer& trainer) {
  const Trainer::Impl& impl = trainer.impl();
  if (impl.original) return impl.original->files;
  const frontend::OnnxFile* file = impl.source ? onnx_file(*impl.source) : nullptr;
  return file ? file->files : std::vector<frontend::FileStamp>();
}

const std::string& written_beside(const Trainer& trainer) { return trainer.impl().written_beside; }

std::string why_not_exported_later(const Trainer& trainer) {
  const Trainer::Impl& impl = trainer.impl();
  const frontend::OnnxFile* file = impl.source ? onnx_file(*impl.source) : nullptr;
  if (!file || file->altered.empty()) return "";
  try {
    frontend::check_fits_one_file(*file->source, impl.options.largest_onnx);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

bool comes_from_onnx(const Trainer& trainer) {
  const Trainer::Impl& impl = trainer.impl();
  return impl.source ? onnx_file(*impl.source) != nullptr : impl.saved.original.has_value();
}

std::optional<IndexFault> find_index_fault(Trainer& trainer) {
  Trainer::Impl& impl = trainer.impl();
  return impl.find_index_fault(impl.step.reader(), impl.fault_age);
}

}  // namespace driver
}  // namespace gcomp
