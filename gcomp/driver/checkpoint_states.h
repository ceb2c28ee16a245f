// Which states of a training a checkpoint keeps, and as what.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint_manifest.h"
#include "gcomp/trainer.h"
#include "runtime/state_memory.h"

namespace gcomp::driver {

/// Whether the state's value outlives a step, so that a training that goes on needs it.
bool is_kept(const runtime::StateEntry& entry);

/// Whether a checkpoint without the state is none of this training. Parameters that do not train come with the model.
bool is_needed(const runtime::StateEntry& entry, const std::vector<std::string>& trained);

/// `averages` are the names of the averages of parameters.
StateKind kind_of(const runtime::StateEntry& entry, const std::set<std::string>& averages);
std::set<std::string> average_names(const std::vector<std::string>& trained);

/// Made at the first call, which reads the model's file.
const CheckpointModel& checkpoint_model(Trainer::Impl& impl);

}  // namespace gcomp::driver
