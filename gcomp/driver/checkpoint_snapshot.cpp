// What of a trainer goes into a checkpoint.
#include <algorithm>

#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/checkpoint_states.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"
#include "passes/training/average_parameters.h"

namespace gcomp::driver {

bool is_kept(const runtime::StateEntry& entry) { return entry.role != runtime::StateRole::scratch; }

bool is_needed(const runtime::StateEntry& entry, const std::vector<std::string>& trained) {
  return is_kept(entry) && (entry.role != runtime::StateRole::parameter || std::ranges::count(trained, entry.name) > 0);
}

StateKind kind_of(const runtime::StateEntry& entry, const std::set<std::string>& averages) {
  if (averages.contains(entry.name)) return StateKind::average;
  if (entry.name == "loss_scale") return StateKind::counter;  // which the optimizer does not know
  switch (entry.role) {
    case runtime::StateRole::parameter: return StateKind::parameter;
    case runtime::StateRole::running_statistic: return StateKind::statistic;
    case runtime::StateRole::optimizer: return StateKind::moment;
    case runtime::StateRole::counter: return StateKind::counter;
    case runtime::StateRole::scratch: break;
  }
  throw InternalError(concat("state '", entry.name, "' has no role"));
}

std::set<std::string> average_names(const std::vector<std::string>& trained) {
  std::set<std::string> names;
  for (const std::string& name : trained) names.insert(passes::average_name(name));
  return names;
}

const CheckpointModel& checkpoint_model(Trainer::Impl& impl) {
  if (impl.checkpoint_model) return *impl.checkpoint_model;
  CheckpointModel model{.name = impl.saved.model,
                        .sha256 = {},
                        .trained = impl.saved.trained,
                        .original = impl.saved.original,
                        .lora = impl.saved.lora};
  if (const frontend::OnnxFile* file = impl.source ? onnx_file(*impl.source) : nullptr)
    model.original = refer_to_original(*file, impl.model);
  if (model.original) model.sha256 = model_digest(*model.original);
  return impl.checkpoint_model.emplace(std::move(model));
}

namespace {

/// A state, and where not every rank has all of it, how it is shared.
struct SnapshotEntry {
  runtime::StateEntry entry;
  const passes::ShardedState* shares = nullptr;
  bool held = true;  ///< some of it by this rank

  TensorType type() const {
    if (!held) return {entry.type.dtype, {0}};
    return shares ? shares->own_type() : entry.type;
  }
};

/// What of the states this rank keeps: its shares, and of the first rank all that is whole too.
std::vector<SnapshotEntry> snapshot_entries(const Trainer::Impl& impl) {
  std::vector<SnapshotEntry> kept;
  for (runtime::StateEntry entry : impl.states.entries()) {
    const passes::ShardedState* shares = impl.states.shares_of(entry.name);
    if (!is_kept(entry) || (!shares && impl.states.rank() != 0)) continue;
    const bool held = !shares || shares->begin(impl.states.rank()) < shares->end(impl.states.rank());
    kept.push_back({std::move(entry), shares, held});
  }
  return kept;
}

}  // namespace

void take_snapshot(Trainer& trainer, const RunState& run, Snapshot& into) {
  Trainer::Impl& impl = trainer.impl();
  check_user(impl.pending == 0, "a checkpoint of a training with ", impl.pending,
             " steps pending: their losses are to be taken first");
  into.run = run;
  into.model = checkpoint_model(impl);
  const RankOf rank = rank_of(impl.options.device_options);
  into.rank = rank.rank;
  into.ranks = rank.ranks;
  const std::set<std::string> averages = average_names(impl.saved.trained);
  std::size_t count = 0;
  for (const SnapshotEntry& held : snapshot_entries(impl)) {
    if (count == into.states.size()) into.states.emplace_back();
    Snapshot::State& state = into.states[count++];
    state.name = held.entry.name;
    state.kind = kind_of(held.entry, averages);
    state.shares = held.shares ? std::optional(*held.shares) : std::nullopt;
    if (state.value.type() != held.type() || state.value.bytes().empty()) state.value = Tensor(held.type());
    if (held.held) impl.memory->read(held.shares ? held.shares->own : held.entry.name, state.value.bytes());
  }
  into.states.resize(count);
}

std::vector<TensorType> snapshot_types(Trainer& trainer) {
  std::vector<TensorType> types;
  for (const SnapshotEntry& held : snapshot_entries(trainer.impl())) types.push_back(held.type());
  return types;
}

Snapshot snapshot(Trainer& trainer, const RunState& run) {
  Snapshot taken;
  take_snapshot(trainer, run, taken);
  return taken;
}

}  // namespace gcomp::driver
