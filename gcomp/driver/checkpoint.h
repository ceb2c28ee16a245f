// Checkpoints of a training: written by a thread from a snapshot while the training goes on, found again and restored to the bit.
//
//   CheckpointWriter writer({.folder = "run/checkpoints", .keep = 3});
//   if (auto found = find_latest("run/checkpoints")) run = restore(trainer, *found);
//   for (...) { trainer.step(); writer.write(trainer, run); for (const CheckpointEvent& event : writer.poll()) ...; }
//   for (const CheckpointEvent& event : writer.finish()) ...;
//
// docs/checkpoints.md has the format, and what holds after a crash at any moment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint_files.h"
#include "gcomp/driver/checkpoint_manifest.h"
#include "gcomp/trainer.h"

namespace gcomp::driver {

/// Copies all that training changes, and the parameters that it does not. Waits for the device. Throws UserError where steps are
/// pending (Trainer::pending()): their losses are to be taken first.
Snapshot snapshot(Trainer& trainer, const RunState& run);
/// The same into the memory of an earlier one, which is taken again where it fits.
void take_snapshot(Trainer& trainer, const RunState& run, Snapshot& into);
/// Types of what a snapshot copies, in order.
std::vector<TensorType> snapshot_types(Trainer& trainer);

struct CheckpointOptions {
  std::filesystem::path folder;  ///< holds "step-00000500" and so on, "latest" and "best"; made where it is missing
  std::int64_t keep = 3;         ///< so many of the last stay, and the best; 0 keeps all
  /// Of several ranks, all of which have one for the same folder: the first writes checkpoints, the others what they alone hold.
  int rank = 0, ranks = 1;
  double patience = 600;  ///< seconds that the first waits for what another has to write
};

/// What became of a checkpoint.
struct CheckpointEvent {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::string failure = {};  ///< why it could not be written; "" where it was
  std::string note = {};     ///< what else is to be said, such as an older one that could not be removed
};

/// Which checkpoints stay beyond CheckpointOptions::keep.
enum class Standing : std::uint8_t { ordinary, best };

/// Writes checkpoints in a thread of its own, in their order. Belongs to one thread, as a Trainer does.
class CheckpointWriter {
 public:
  /// Makes the folder, and removes what killed processes left in it; ranks but the first find it made. Throws UserError where
  /// nothing can be written there, or (exit 2) `keep` is negative.
  explicit CheckpointWriter(CheckpointOptions options);
  /// Waits until all is written.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Has the thread allocate and touch the memory of a first snapshot, which takes longer than the copy.
  void prepare(Trainer& trainer);
  /// Takes a snapshot and returns; where two are not written yet, waits for the older one. Throws as snapshot() does; what goes
  /// wrong with the files is an event of a later call.
  void write(Trainer& trainer, const RunState& run, Standing standing = Standing::ordinary);
  /// What became of checkpoints since the last call, each once.
  std::vector<CheckpointEvent> poll();
  /// Waits until all is written, then as poll().
  std::vector<CheckpointEvent> finish();
  /// "2 of 10 checkpoints could not be written, the last for: ...", of all its life; "" where none failed.
  std::string failures() const;
  /// The last that was written, so far; "" where none was.
  std::filesystem::path latest() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "step-00000500".
std::string checkpoint_name(std::int64_t step);

struct FoundCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
  std::string passed_over;  ///< why newer ones were not taken, in words; "" where there are none
};

/// The newest checkpoint of a folder that is whole: sizes and SHA-256 of its files were compared. None where the folder is missing
/// or holds no checkpoint. Throws UserError where there are some and none is whole, OtherFormat where the newest that is not
/// damaged has another format.
std::optional<FoundCheckpoint> find_latest(const std::filesystem::path& folder);
/// The same of a single checkpoint, of a folder of them, or of a run's folder that has them in "checkpoints". Throws UserError
/// where there is none.
FoundCheckpoint open_checkpoint(const std::filesystem::path& path);

/// Whether `path` is what open_checkpoint() takes, by its looks.
bool looks_like_checkpoint(const std::filesystem::path& path);

/// Gives the trainer every state of the checkpoint, and its data position. Throws UserError, having changed nothing: a tensor of
/// another type, which is named with what was found and wanted, tensors that only one of the two has, another model file, steps
/// pending, a file that is damaged.
RunState restore(Trainer& trainer, const FoundCheckpoint& found);

}  // namespace gcomp::driver
