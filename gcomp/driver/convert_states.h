// The half of convert_model() that makes artifacts and checkpoints.
#pragma once

#include <map>
#include <string>

#include "gcomp/driver/checkpoint_files.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/tensor.h"
#include "runtime/artifact.h"

namespace gcomp::driver {

struct ReadArtifact {
  std::filesystem::path path;
  runtime::Artifact artifact;
  SavedModel saved;
};
ReadArtifact read_with_model(const std::filesystem::path& path);

/// Throws UserError where the artifact's programs count adapters of the same values otherwise.
void check_adapters(const Adaptation& lora, const ReadArtifact& made);

/// Gives the artifact all states of a checkpoint. Throws UserError where one of them does not fit its training step.
void adopt_checkpoint(ReadArtifact& made, const Manifest& manifest, const std::map<std::string, Tensor>& tensors);

/// Gives the artifact these weights, and nothing of a training: that starts anew from them. `constants`: tensors beside them are
/// no error. Throws UserError where names or shapes do not fit.
void adopt_weights(ReadArtifact& made, const std::map<std::string, Tensor>& weights, bool constants);

/// All states of the artifact's training step as a checkpoint holds them. Throws UserError where it has none.
Snapshot snapshot_of(const ReadArtifact& from);

}  // namespace gcomp::driver
