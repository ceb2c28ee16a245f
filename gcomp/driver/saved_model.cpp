#include "gcomp/driver/saved_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "gcomp/driver/saved_json.h"
#include "gcomp/driver/step_ports.h"
#include "gcomp/driver/step_programs.h"
#include "runtime/backend.h"
#include "runtime/files/strict_json.h"
#include "runtime/timed_choices.h"

namespace gcomp::driver {
namespace {

using nlohmann::json;

constexpr char kKey[] = "gcomp.model";
constexpr int kMostNesting = 5;

std::vector<IndexLimit> limits_of(Members& members) {
  std::vector<IndexLimit> limits;
  for (const json& limit : members.list("limits")) {
    check_user(limit.is_array() && limit.size() == 2 && limit[0].is_string() && limit[1].is_number_unsigned(), "a limit is ",
               limit.dump());
    limits.push_back({limit[0].get<std::string>(), limit[1].get<std::int64_t>()});
  }
  return limits;
}

json to_json(const std::vector<IndexLimit>& limits) {
  json list = json::array();
  for (const IndexLimit& limit : limits) list.push_back({limit.input, limit.limit});
  return list;
}

SavedEvaluation evaluation_of(const json& object) {
  Members members(object);
  SavedEvaluation evaluation{
      .term_is_sum = {}, .takes_parts = members.boolean("takes_parts"), .limits = limits_of(members), .metrics = {}};
  for (const json& is_sum : members.list("terms")) {
    check_user(is_sum.is_boolean(), "a term is ", is_sum.dump());
    evaluation.term_is_sum.push_back(is_sum.get<bool>());
  }
  for (const json& listed : members.list("metrics")) {
    Members metric(listed);
    evaluation.metrics.push_back(
        {.text = metric.text("text"), .takes_scores = metric.boolean("takes_scores"), .of_classes = metric.boolean("of_classes")});
    metric.end();
  }
  members.end();
  return evaluation;
}

json to_json(const SavedEvaluation& evaluation) {
  json terms = json::array(), metrics = json::array();
  for (const bool is_sum : evaluation.term_is_sum) terms.push_back(is_sum);
  for (const SavedMetric& metric : evaluation.metrics)
    metrics.push_back({{"text", metric.text}, {"takes_scores", metric.takes_scores}, {"of_classes", metric.of_classes}});
  return {{"terms", terms}, {"takes_parts", evaluation.takes_parts}, {"limits", to_json(evaluation.limits)}, {"metrics", metrics}};
}

double read_rate(Members& members, const char* name) {
  const json& rate = members.at(name);
  check_user(rate.is_number() && std::isfinite(rate.get<double>()) && rate.get<double>() >= 0, "'", name, "' is ", rate.dump());
  return rate.get<double>();
}

std::vector<ParameterGroup> groups_of(Members& members) {
  std::vector<ParameterGroup> groups;
  if (!members.has("groups")) return groups;  // written before there were any
  for (const json& listed : members.list("groups")) {
    Members group(listed);
    groups.push_back({.text = group.text("text"),
                      .rate = read_rate(group, "rate"),
                      .tensors = group.integer("tensors", 0),
                      .elements = group.integer("elements", 0)});
    group.end();
  }
  return groups;
}

std::vector<double> numbers_of(Members& members, const char* name) {
  std::vector<double> numbers;
  for (const json& number : members.list(name)) {
    check_user(number.is_number() && std::isfinite(number.get<double>()), "'", name, "' lists ", number.dump());
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

std::vector<InputForm> input_forms_of(Members& members) {
  std::vector<InputForm> forms;
  for (const json& listed : members.list("input_forms")) {
    Members form(listed);
    const std::optional<DType> dtype = parse_dtype(form.text("dtype"));
    check_user(dtype.has_value(), "the dtype of an input's form is '", form.text("dtype"), "'");
    forms.push_back({.input = form.text("input"),
                     .dtype = *dtype,
                     .divisor = read_rate(form, "divisor"),
                     .mean = numbers_of(form, "mean"),
                     .std = numbers_of(form, "std"),
                     .axis = form.integer("axis", -32)});
    form.end();
  }
  return forms;
}

json to_json(const std::vector<InputForm>& forms) {
  json list = json::array();
  for (const InputForm& form : forms)
    list.push_back({{"input", form.input},
                    {"dtype", name_of(form.dtype)},
                    {"divisor", form.divisor},
                    {"mean", form.mean},
                    {"std", form.std},
                    {"axis", form.axis}});
  return list;
}

std::vector<LabelLimit> labels_of(Members& members) {
  std::vector<LabelLimit> labels;
  for (const json& label : members.list("labels")) {
    check_user(label.is_array() && label.size() == 3 && label[0].is_string() && label[1].is_number_unsigned() &&
                   (label[2].is_null() || label[2].is_number_integer()),
               "a label is ", label.dump());
    labels.push_back({label[0].get<std::string>(), label[1].get<std::int64_t>(),
                      label[2].is_null() ? std::nullopt : std::optional(label[2].get<std::int64_t>())});
  }
  return labels;
}

/// Of an artifact from the time when a loss read one array and the host evaluated.
std::vector<LabelLimit> older_labels_of(Members& members) {
  constexpr std::int64_t kIgnored = -100;
  members.integer("axis", -1);
  members.natural("loss_output");
  const std::int64_t classes = members.integer("classes", 0);
  if (!members.boolean("label")) return {};
  return {{"label", classes, kIgnored}};
}

SavedModel parse(const json& object) {
  Members members(object);
  SavedModel saved{.model = members.text("model"),
                   .loss = members.text("loss"),
                   .learning_rate = 0,
                   .trained = members.names("trained"),
                   .weights = members.names("weights"),
                   .outputs = members.names("outputs"),
                   .labels = {},
                   .limits = {},
                   .row_dependence = members.text("row_dependence"),
                   .groups = groups_of(members),
                   .lora = {},
                   .input_forms = {},
                   .preprocessing = members.has("preprocessing") ? members.text("preprocessing") : "",
                   .number_names = members.has("number_names") ? members.text("number_names") : "",
                   .micro_batches = members.has("micro_batches") ? members.integer("micro_batches", 2) : 1,
                   .timed = members.has("timed_choices") ? members.text("timed_choices") : "",
                   .winograd = members.has("winograd") && members.boolean("winograd"),
                   .tf32 = members.has("tf32") && members.boolean("tf32"),
                   .no_cublaslt = members.has("no_cublaslt") && members.boolean("no_cublaslt"),
                   .no_cudnn = members.has("no_cudnn") && members.boolean("no_cudnn"),
                   .portable_bits = members.has("portable_bits") && members.boolean("portable_bits"),
                   .tiles = members.has("tiles") ? std::optional(members.boolean("tiles")) : std::nullopt,
                   .position = position_of(members.at("position")),
                   .evaluation = {},
                   .original = {}};
  saved.learning_rate = read_rate(members, "learning_rate");
  if (!saved.timed.empty()) runtime::parse_timed_choices(saved.timed);
  saved.limits = limits_of(members);
  if (members.has("input_forms")) saved.input_forms = input_forms_of(members);
  if (members.has("lora")) saved.lora = lora_of(members.at("lora"));
  if (members.has("labels")) {
    saved.labels = labels_of(members);
    if (!members.at("evaluation").is_null()) saved.evaluation = evaluation_of(members.at("evaluation"));
  } else {
    saved.labels = older_labels_of(members);
  }
  if (!members.at("original").is_null()) saved.original = original_of(members.at("original"));
  members.end();
  return saved;
}

const std::string& buffer_name(const runtime::Program& program, int buffer) {
  return program.buffers[static_cast<std::size_t>(buffer)].name;
}

bool has_input(const runtime::Program& program, std::string_view name) {
  return std::any_of(program.inputs.begin(), program.inputs.end(),
                     [&](const runtime::Port& input) { return buffer_name(program, input.buffer) == name; });
}

void check_forward(const SavedModel& saved, const runtime::Program& forward) {
  check_user(saved.outputs.size() == forward.outputs.size(), "it names ", saved.outputs.size(), " outputs, the forward pass has ",
             forward.outputs.size());
  for (const IndexLimit& limit : saved.limits)
    check_user(has_input(forward, limit.input), "'", limit.input, "', which it limits, is no input");
  for (const InputForm& form : saved.input_forms)
    check_user(has_input(forward, form.input), "'", form.input, "', whose form it says, is no input");
}

void check_step(const SavedModel& saved, const runtime::Artifact& artifact, const runtime::Program& step) {
  check_user(!saved.loss.empty(), "it does not fit its training step");
  static_cast<void>(step_ports(step));
  const runtime::Program* reader = saved.micro_batches > 1 ? find_program(artifact, kShardProgram) : &step;
  if (!reader) reader = find_program(artifact, kLockStepProgram);
  check_user(reader && saved.micro_batches <= kMostMicroBatches, "it does not fit its training step of ", saved.micro_batches,
             " micro-batches");
  for (const LabelLimit& label : saved.labels)
    check_user(has_input(*reader, label.array), "'", label.array, "', whose labels it limits, is no input");
}

/// Every array is a state of some program, and of its type.
void check_weights(const SavedModel& saved, const runtime::Artifact& artifact) {
  std::map<std::string, const TensorType*> states;
  for (const runtime::Program& program : artifact.programs)
    for (const runtime::State& state : program.states) {
      const runtime::Buffer& buffer = program.buffers[static_cast<std::size_t>(state.buffer)];
      states.emplace(buffer.name, &buffer.type);
    }
  for (const auto& [name, tensor] : artifact.weights) {
    const auto state = states.find(name);
    check_user(state != states.end(), "'", name, "' among its weights is no state");
    check_user(tensor.type() == *state->second, "its weight '", name, "' is ", to_string(tensor.type()), ", wanted ",
               to_string(*state->second));
  }
  for (const std::string& name : saved.trained) check_user(states.count(name) > 0, "'", name, "', which is trained, is no state");
}

}  // namespace

void store(const SavedModel& saved, runtime::Artifact& artifact) {
  json labels = json::array();
  for (const LabelLimit& label : saved.labels)
    labels.push_back({label.array, label.classes, label.ignored ? json(*label.ignored) : json()});
  json groups = json::array();
  for (const ParameterGroup& group : saved.groups)
    groups.push_back({{"text", group.text}, {"rate", group.rate}, {"tensors", group.tensors}, {"elements", group.elements}});
  json object = {{"model", saved.model},
                 {"loss", saved.loss},
                 {"trained", saved.trained},
                 {"weights", saved.weights},
                 {"outputs", saved.outputs},
                 {"labels", labels},
                 {"limits", to_json(saved.limits)},
                 {"row_dependence", saved.row_dependence},
                 {"learning_rate", saved.learning_rate},
                 {"groups", groups},
                 {"position", to_json(saved.position)},
                 {"evaluation", saved.evaluation ? to_json(*saved.evaluation) : json()},
                 {"original", saved.original ? to_json(*saved.original) : json()}};
  if (saved.lora) object["lora"] = to_json(*saved.lora);
  if (!saved.input_forms.empty()) object["input_forms"] = to_json(saved.input_forms);
  if (!saved.preprocessing.empty()) object["preprocessing"] = saved.preprocessing;
  if (!saved.number_names.empty()) object["number_names"] = saved.number_names;
  if (saved.micro_batches > 1) object["micro_batches"] = saved.micro_batches;
  if (!saved.timed.empty()) object["timed_choices"] = saved.timed;
  if (saved.winograd) object["winograd"] = true;
  if (saved.tf32) object["tf32"] = true;
  if (saved.no_cublaslt) object["no_cublaslt"] = true;
  if (saved.no_cudnn) object["no_cudnn"] = true;
  if (saved.portable_bits) object["portable_bits"] = true;
  if (saved.tiles) object["tiles"] = *saved.tiles;
  artifact.metadata[kKey] = object.dump(-1, ' ', false, json::error_handler_t::replace);
}

SavedModel saved_model(const runtime::Artifact& artifact, const std::filesystem::path& path) {
  const auto found = artifact.metadata.find(kKey);
  check_user(found != artifact.metadata.end(), "'", path.string(), "' was not written by gcomp compile or train");
  try {
    SavedModel saved = parse(runtime::parse_strict_json(found->second, kMostNesting));
    if (const runtime::Program* forward = find_program(artifact, kForwardProgram)) check_forward(saved, *forward);
    if (const runtime::Program* step = find_program(artifact, kTrainingProgram)) check_step(saved, artifact, *step);
    check_user(saved.evaluation.has_value() == (find_program(artifact, kEvaluationProgram) != nullptr),
               "it does not fit its evaluation");
    check_weights(saved, artifact);
    return saved;
  } catch (const UserError& error) {
    throw UserError(concat("'", path.string(), "': its description of the model is damaged: ", error.what()));
  } catch (const json::exception& error) {
    throw UserError(concat("'", path.string(), "': its description of the model is damaged: ", error.what()));
  }
}

std::int64_t trained_steps(const std::filesystem::path& path) {
  try {
    return parse(runtime::parse_strict_json(runtime::read_artifact_metadata(path).at(kKey), kMostNesting)).position.steps;
  } catch (const UserError&) { return 0; } catch (const json::exception&) {
    return 0;
  } catch (const std::out_of_range&) { return 0; }
}

void keep_choices(SavedModel& saved, const DeviceOptions& options) {
  saved.winograd = options.winograd;
  saved.tf32 = options.precision == MatmulPrecision::tf32;
  saved.no_cublaslt = !options.use_cublaslt;
  saved.no_cudnn = !options.use_cudnn;
  saved.portable_bits = options.portable_bits;
}

DeviceOptions with_choices(DeviceOptions options, const SavedModel& saved) {
  if (options.timed_choices.empty()) options.timed_choices = saved.timed;
  options.winograd = options.winograd || saved.winograd;
  if (saved.tf32) options.precision = MatmulPrecision::tf32;
  options.use_cublaslt = options.use_cublaslt && !saved.no_cublaslt;
  options.use_cudnn = options.use_cudnn && !saved.no_cudnn;
  options.portable_bits = options.portable_bits || saved.portable_bits;
  return options;
}

std::vector<std::string> note_choices(const SavedModel& saved, const DeviceOptions& options, const runtime::Device& device,
                                      const std::filesystem::path& path) {
  std::vector<std::string> notes;
  const auto note = [&](bool of_model, bool given, std::string_view option) {
    if (of_model && !given) notes.push_back(concat("'", path.string(), "' was made with ", option, ", and goes on so"));
    if (given && !of_model)
      notes.push_back(concat("'", path.string(), "' was made without ", option, ": its bits are others from here on"));
  };
  note(saved.winograd, options.winograd, "--winograd");
  note(saved.tf32, options.precision == MatmulPrecision::tf32, "--tf32");
  if (saved.no_cublaslt) note(true, !options.use_cublaslt, "--no-cublaslt");
  if (saved.no_cudnn) note(true, !options.use_cudnn, "--no-cudnn");
  if (saved.portable_bits) note(true, options.portable_bits, "--portable-bits");
  if (const bool tiles = has_tiles(device.description()); saved.tiles && *saved.tiles != tiles)
    notes.push_back(concat("'", path.string(), "': its ", other_tiles_text(tiles)));
  if (saved.timed.empty()) return notes;
  const std::string why = runtime::difference(saved.timed, device.timed_choices());
  if (!why.empty())
    notes.push_back(
        concat("'", path.string(), "': its timed choices (--tune) are not taken: ", why, "; bits may differ from here on"));
  return notes;
}

void require_device(runtime::DeviceRequest request, const runtime::Target& target, const std::filesystem::path& path) {
  if (request == runtime::DeviceRequest::automatic) return;
  if (const runtime::Backend& asked = runtime::backend_of(request); asked.kind != target.kind)
    throw UserError(concat("--device ", asked.name, ": '", path.string(), "' is compiled for ", runtime::to_string(target)),
                    ExitCode::usage);
}

std::string total_program(std::size_t node, std::size_t nodes) {
  return nodes == 1 ? std::string(kTotalProgram) : concat(kTotalProgram, "_", node);
}

bool is_step_program(std::string_view name) {
  return name == kTrainingProgram || name == kShardProgram || name == kLockStepProgram || name == kCountProgram ||
         name.starts_with(kTotalProgram) || name.starts_with(kCombineProgram) || name.starts_with(kExchangeProgram) ||
         name == kCountExchangeProgram || name.starts_with(kGatherProgram);
}

const runtime::Program* find_program(const runtime::Artifact& artifact, std::string_view name) {
  for (const runtime::Program& program : artifact.programs)
    if (program.name == name) return &program;
  return nullptr;
}

std::string kernel_binary_name(const runtime::Program& program) { return runtime::backend_of(program.target).binary_path(program); }

std::span<const std::byte> kernel_binary(const runtime::Artifact& artifact, const runtime::Program& program) {
  for (const auto& [name, bytes] : artifact.binaries)
    if (name == kernel_binary_name(program)) return bytes;
  return {};
}

}  // namespace gcomp::driver
