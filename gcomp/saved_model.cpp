#include "gcomp/saved_model.h"

#include <nlohmann/json.hpp>

#include "runtime/strict_json.h"

namespace gcomp {
namespace {

constexpr char kKey[] = "gcomp.model";
constexpr int kMostNesting = 4;

}  // namespace

void store(const SavedModel& saved, runtime::Artifact& artifact) {
  nlohmann::json limits = nlohmann::json::array();
  for (const IndexLimit& limit : saved.limits) limits.push_back({limit.input, limit.limit});
  const nlohmann::json json = {{"model", saved.model},
                               {"loss", saved.loss},
                               {"axis", saved.axis},
                               {"classes", saved.classes},
                               {"trained", saved.trained},
                               {"weights", saved.weights},
                               {"outputs", saved.outputs},
                               {"loss_output", saved.loss_output},
                               {"label", saved.has_label},
                               {"limits", limits},
                               {"row_dependence", saved.row_dependence},
                               {"learning_rate", saved.learning_rate}};
  artifact.metadata[kKey] = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

SavedModel saved_model(const runtime::Artifact& artifact, const std::filesystem::path& path) {
  const auto found = artifact.metadata.find(kKey);
  check_user(found != artifact.metadata.end(), "'", path.string(), "' was not written by gcomp compile or train");
  try {
    const nlohmann::json json = runtime::parse_strict_json(found->second, kMostNesting);
    SavedModel saved;
    json.at("model").get_to(saved.model);
    json.at("loss").get_to(saved.loss);
    json.at("axis").get_to(saved.axis);
    json.at("classes").get_to(saved.classes);
    json.at("learning_rate").get_to(saved.learning_rate);
    json.at("trained").get_to(saved.trained);
    json.at("weights").get_to(saved.weights);
    json.at("outputs").get_to(saved.outputs);
    json.at("loss_output").get_to(saved.loss_output);
    json.at("label").get_to(saved.has_label);
    json.at("row_dependence").get_to(saved.row_dependence);
    for (const auto& limit : json.at("limits")) saved.limits.push_back({limit.at(0), limit.at(1)});
    return saved;
  } catch (const nlohmann::json::exception& error) {
    throw UserError(concat("'", path.string(), "': its description of the model is damaged: ", error.what()));
  }
}

void require_device(runtime::DeviceRequest request, const runtime::Target& target, const std::filesystem::path& path) {
  if (request == runtime::DeviceRequest::automatic) return;
  const bool cpu = request == runtime::DeviceRequest::cpu;
  if (cpu != (target.kind == runtime::TargetKind::cpu))
    throw UserError(
        concat("--device ", cpu ? "cpu" : "cuda", ": '", path.string(), "' is compiled for ", runtime::to_string(target)),
        ExitCode::usage);
}

const runtime::Program* find_program(const runtime::Artifact& artifact, std::string_view name) {
  for (const runtime::Program& program : artifact.programs)
    if (program.name == name) return &program;
  return nullptr;
}

std::string kernel_binary_name(const runtime::Program& program) {
  if (program.target.kind == runtime::TargetKind::cpu) return concat("cpu/", program.name, ".so");
  return concat("cubins/", program.target.architecture, "/", program.name, ".cubins");
}

std::span<const std::byte> kernel_binary(const runtime::Artifact& artifact, const runtime::Program& program) {
  for (const auto& [name, bytes] : artifact.binaries)
    if (name == kernel_binary_name(program)) return bytes;
  return {};
}

}  // namespace gcomp
