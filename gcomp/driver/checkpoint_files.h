// The files of one checkpoint: written from a snapshot as a whole or not at all, verified, and read back as whole tensors.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint_manifest.h"
#include "ir/base/tensor.h"
#include "passes/training/sharded_state.h"
#include "runtime/files/atomic_folder.h"

namespace gcomp {
class Trainer;
}

namespace gcomp::driver {

/// A training at one moment, in host memory.
struct Snapshot {
  struct State {
    std::string name;
    StateKind kind = StateKind::parameter;
    Tensor value;
    std::optional<passes::ShardedState> shares = {};  ///< then `value` is what this rank holds of it
  };
  std::vector<State> states;
  RunState run;
  CheckpointModel model;
  int rank = 0, ranks = 1;
};

/// Puts a part into a folder, and what it holds into the manifest. AtomicFolder's errors.
using PartCollector = std::function<void(runtime::AtomicFolder& folder, Manifest& manifest)>;

/// Writes whole tensors, this rank's shares, and what `collect` adds of the others'. In this order: every file, each synced; the
/// manifest and its digest, synced; the folder synced; renamed; the folder around it synced. Throws UserError, and then `path` is
/// as it was.
void write_checkpoint(const std::filesystem::path& path, const Snapshot& snapshot, const PartCollector& collect = {});

/// The shares of a snapshot as files of the folder: one for each kind, with this rank's name. Adds them to the manifest.
void write_shares(runtime::AtomicFolder& folder, const Snapshot& snapshot, Manifest& manifest);

/// The manifest, its own digest compared. Throws OtherFormat, or UserError, both with the path.
Manifest read_manifest(const std::filesystem::path& path);

/// Compares size and SHA-256 of every file with the manifest. Throws UserError with the path of the first that differs.
void verify_files(const std::filesystem::path& path, const Manifest& manifest);

/// Tensors put together from their pieces, all or those that `wanted` says; sizes and digests of the files that are read are
/// compared. Throws UserError where a file holds other tensors than the manifest says.
std::map<std::string, Tensor> read_tensors(const std::filesystem::path& path, const Manifest& manifest,
                                           const std::function<bool(const CheckpointTensor&)>& wanted = {});

}  // namespace gcomp::driver
