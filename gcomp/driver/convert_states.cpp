#include "gcomp/driver/convert_states.h"

#include <algorithm>

#include "gcomp/driver/checkpoint_states.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/convert.h"

namespace gcomp::driver {
namespace {

void require_training_step(const ReadArtifact& from) {
  check_user(find_program(from.artifact, kTrainingProgram), "'", from.path.string(),
             "' holds no training step; make one with gcomp compile --train");
}

std::map<std::string, runtime::StateEntry> entries_of(const runtime::Artifact& artifact) {
  std::map<std::string, runtime::StateEntry> entries;
  for (const runtime::Program& program : artifact.programs)
    for (const runtime::State& state : program.states) {
      const runtime::Buffer& buffer = program.buffers[static_cast<std::size_t>(state.buffer)];
      entries.emplace(buffer.name,
                      runtime::StateEntry{.name = buffer.name, .type = buffer.type, .role = state.role, .fill = state.fill});
    }
  return entries;
}

/// What was computed of frozen parameters when the artifact was compiled is part of its programs.
void check_frozen(const ReadArtifact& made, const runtime::StateEntry& entry, const Tensor& value) {
  const auto before = made.artifact.weights.find(entry.name);
  const bool frozen = entry.role == runtime::StateRole::parameter && std::ranges::count(made.saved.trained, entry.name) == 0;
  check_user(!frozen || before == made.artifact.weights.end() || before->second == value, "'", entry.name, "' is frozen in '",
             made.path.string(), "', and what was computed from it when that was compiled would stay: compile it again");
}

void check_lacking(const ReadArtifact& made, const std::vector<std::string>& lacking) {
  check_user(lacking.empty(), "the input lacks ", listing(lacking), " of '", made.path.string(), "'");
}

/// Whether it is an initializer that the model ties to a state, with what that state is taken to be. Throws UserError for others.
bool is_tied_value(const ReadArtifact& made, const std::map<std::string, Tensor>& taken, const std::string& name,
                   const Tensor& tensor) {
  if (!made.saved.original) return false;
  for (const frontend::Alias& alias : made.saved.original->aliases) {
    if (alias.kind != frontend::Alias::Kind::tied || alias.initializer != name) continue;
    const auto state = taken.find(alias.state);
    if (state == taken.end()) return true;
    check_user(as_initializer(alias, state->second, tensor.shape()).cast(tensor.dtype()) == tensor, "'", name, "' is not what '",
               alias.state, "' is in the input, to which '", made.path.string(), "' ties it");
    return true;
  }
  return false;
}

}  // namespace

ReadArtifact read_with_model(const std::filesystem::path& path) {
  ReadArtifact read{.path = path, .artifact = runtime::read_artifact(path), .saved = {}};
  read.saved = saved_model(read.artifact, path);
  return read;
}

void check_adapters(const Adaptation& lora, const ReadArtifact& made) {
  const std::string other = made.saved.lora ? difference(lora, *made.saved.lora) : "";
  check_user(other.empty(), "the input's adapters are not those of '", made.path.string(), "': ", other, " there");
}

void adopt_checkpoint(ReadArtifact& made, const Manifest& manifest, const std::map<std::string, Tensor>& tensors) {
  const std::map<std::string, runtime::StateEntry> entries = entries_of(made.artifact);
  require_training_step(made);
  for (const auto& [name, tensor] : tensors) {
    const auto entry = entries.find(name);
    check_user(entry != entries.end(), "'", made.path.string(), "' has no state '", name, "', which the checkpoint has");
    check_user(entry->second.type == tensor.type(), "tensor '", name, "' is ", to_string(tensor.type()),
               " in the checkpoint, wanted ", to_string(entry->second.type), " as in '", made.path.string(), "'");
    check_frozen(made, entry->second, tensor);
  }
  std::vector<std::string> lacking;
  for (const auto& [name, entry] : entries)
    if (is_needed(entry, made.saved.trained) && !tensors.contains(name)) lacking.push_back(name);
  check_lacking(made, lacking);
  if (manifest.model.lora) check_adapters(*manifest.model.lora, made);
  for (const auto& [name, tensor] : tensors) made.artifact.weights.insert_or_assign(name, tensor);
  made.saved.position = manifest.run.position;
}

void adopt_weights(ReadArtifact& made, const std::map<std::string, Tensor>& weights, bool constants) {
  const std::map<std::string, runtime::StateEntry> entries = entries_of(made.artifact);
  std::map<std::string, Tensor> taken;
  std::vector<std::string> lacking, extra;
  for (const std::string& name : made.saved.weights) {
    const auto entry = entries.find(name);
    if (entry == entries.end()) continue;
    const auto found = weights.find(name);
    if (found == weights.end()) {
      lacking.push_back(name);
      continue;
    }
    const TensorType& wanted = entry->second.type;
    check_user(found->second.shape() == wanted.shape, "tensor '", name, "' is ", to_string(found->second.type()), ", wanted ",
               to_string(wanted), " as in '", made.path.string(), "'");
    Tensor value = runtime::convert(found->second, wanted.dtype, concat("'", name, "'"));
    check_frozen(made, entry->second, value);
    taken.emplace(name, std::move(value));
  }
  for (const auto& [name, tensor] : weights)
    if (!taken.contains(name) && !is_tied_value(made, taken, name, tensor)) extra.push_back(name);
  check_lacking(made, lacking);
  check_user(constants || extra.empty(), "'", made.path.string(), "' has no ", listing(extra), ", which the input has");
  made.artifact.weights = std::move(taken);
  made.saved.position = {.seed = made.saved.position.seed, .shuffled = made.saved.position.shuffled};
}

Snapshot snapshot_of(const ReadArtifact& from) {
  require_training_step(from);
  Snapshot snapshot;
  const std::set<std::string> averages = average_names(from.saved.trained);
  for (const auto& [name, entry] : entries_of(from.artifact)) {
    if (!is_kept(entry)) continue;
    const auto found = from.artifact.weights.find(name);
    const bool stored = found != from.artifact.weights.end();
    check_user(stored || entry.fill, "'", from.path.string(), "' lacks the state '", name, "'");
    const double fill[] = {entry.fill.value_or(0)};
    snapshot.states.push_back(
        {name, kind_of(entry, averages), stored ? found->second : Tensor::of(entry.type.dtype, entry.type.shape, fill)});
  }
  snapshot.run.step = from.saved.position.steps;
  snapshot.run.position = from.saved.position;
  snapshot.model = {.name = from.saved.model,
                    .sha256 = {},
                    .trained = from.saved.trained,
                    .original = from.saved.original,
                    .lora = from.saved.lora};
  if (snapshot.model.original) snapshot.model.sha256 = model_digest(*snapshot.model.original);
  return snapshot;
}

}  // namespace gcomp::driver
