// A training goes on from a checkpoint.
#include <algorithm>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/checkpoint_states.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::driver {
namespace {

constexpr std::size_t kShownDigest = 16;

std::vector<std::string> unknown_tensors(const Manifest& manifest, const WholeStates& memory) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : manifest.tensors)
    if (!memory.contains(name)) names.push_back(name);
  return names;
}

/// States that the checkpoint has to have; a parameter that does not train keeps the model's values where it has not.
std::vector<std::string> lacking_tensors(const Manifest& manifest, const Trainer::Impl& impl) {
  std::vector<std::string> names;
  for (const runtime::StateEntry& entry : impl.states.entries())
    if (is_needed(entry, impl.saved.trained) && !manifest.tensors.contains(entry.name)) names.push_back(entry.name);
  return names;
}

/// "tensor 'w' is f32[3] there, wanted f32[4], and 2 others differ"; "" where all have the trainer's types.
std::string other_types(const Manifest& manifest, const WholeStates& memory) {
  std::string first;
  std::size_t others = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!memory.contains(name)) continue;
    const TensorType wanted = memory.entry(name).type;
    if (tensor.type == wanted) continue;
    if (first.empty()) first = concat("tensor '", name, "' is ", to_string(tensor.type), " there, wanted ", to_string(wanted));
    else ++others;
  }
  return others == 0 ? first : concat(first, ", and ", others, others == 1 ? " other differs" : " others differ");
}

/// Throws where the checkpoint does not fit the trainer.
void check_fits(Trainer::Impl& impl, const FoundCheckpoint& found) {
  const std::string where = concat("checkpoint '", found.path.string(), "' is of another model: ");
  const std::string types = other_types(found.manifest, impl.states);
  check_user(types.empty(), where, types);
  const std::vector<std::string> lacking = lacking_tensors(found.manifest, impl);
  check_user(lacking.empty(), where, "it lacks ", listing(lacking));
  const std::vector<std::string> unknown = unknown_tensors(found.manifest, impl.states);
  check_user(unknown.empty(), where, "it has ", listing(unknown), ", which the training step has not");
  const CheckpointModel& model = checkpoint_model(impl);
  const std::string& there = found.manifest.model.sha256;
  check_user(there.empty() || model.sha256.empty() || there == model.sha256, where, "its tensors fit, but it was made from '",
             found.manifest.model.name, "' with a SHA-256 that begins with ", there.substr(0, kShownDigest), ", and that of '",
             model.name, "' begins with ", model.sha256.substr(0, kShownDigest));
  const std::optional<Adaptation>& lora = found.manifest.model.lora;
  const std::string other = lora && model.lora ? difference(*lora, *model.lora) : "";
  check_user(other.empty(), where, "its adapters are others: ", other);
}

}  // namespace

RunState restore(Trainer& trainer, const FoundCheckpoint& found) {
  Trainer::Impl& impl = trainer.impl();
  check_user(impl.pending == 0, "restore: the losses of ", impl.pending, " steps are to be taken first");
  // Parameters that no training step reads come with the forward pass.
  if (impl.source && !unknown_tensors(found.manifest, impl.states).empty()) impl.forward_pass();
  check_fits(impl, found);
  std::map<std::string, Tensor> tensors = read_tensors(found.path, found.manifest);
  for (const auto& [name, value] : tensors) impl.states.write(name, value);
  if (impl.states.any_in_shares()) impl.restored = std::move(tensors);  // for share_states()
  trainer.set_data_position(found.manifest.run.position);
  return found.manifest.run;
}

}  // namespace gcomp::driver
