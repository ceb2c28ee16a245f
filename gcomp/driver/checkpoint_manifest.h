// The manifest of a checkpoint: what its files hold, and all of a run that no tensor says. docs/checkpoints.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/data_position.h"
#include "gcomp/driver/adaptation.h"
#include "gcomp/driver/original_model.h"
#include "ir/base/tensor.h"
#include "runtime/files/atomic_folder.h"

namespace gcomp::driver {

/// What this gcomp writes, and the only format that it reads.
inline constexpr int kCheckpointFormat = 1;
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kManifestDigestFile[] = "manifest.json.sha256";  ///< for `sha256sum -c`

/// What a training loop knows beside the trainer. Texts are JSON that only the loop reads, but for the fields of `config`.
struct RunState {
  std::int64_t step = 0;  ///< done by the run
  DataPosition position;  ///< of the next step
  std::string schedule = "null";
  std::string loop = "null";  ///< early stopping, the best value so far, statistics of spikes
  std::string config = "{}";  ///< an object: what the run was asked for
  std::string timed = "";     ///< DeviceOptions::timed_choices; "" where nothing was timed

  bool operator==(const RunState&) const = default;
};

/// What a state of the training is; decides the file that it goes to, "parameters.safetensors" and so on.
enum class StateKind : std::uint8_t { parameter, statistic, moment, average, counter };
std::string_view name_of(StateKind kind);
std::string file_of(StateKind kind);
/// Of what one of several ranks holds: "moments-2-of-8.safetensors".
std::string file_of(StateKind kind, int rank, int ranks);

/// Elements of a tensor, in row-major order, that lie in one file: under the tensor's name, with its shape where it is whole there,
/// else flat.
struct TensorPiece {
  std::string file;
  std::int64_t offset = 0, length = 0;  ///< in elements

  bool operator==(const TensorPiece&) const = default;
};

struct CheckpointTensor {
  TensorType type;
  StateKind kind = StateKind::parameter;
  std::vector<TensorPiece> pieces;  ///< each element in one of them, at most one in a file

  bool operator==(const CheckpointTensor&) const = default;
};

/// Which model a checkpoint is of.
struct CheckpointModel {
  std::string name;                       ///< its file, or the name given
  std::string sha256;                     ///< model_digest(); "" where there is no ONNX file
  std::vector<std::string> trained;       ///< states that training changes
  std::optional<OriginalModel> original;  ///< what an export needs beside the tensors
  std::optional<Adaptation> lora;         ///< none without adapters
};

/// Of the ONNX file, and of its external data where it has any; "" where the file was kept whole.
std::string model_digest(const OriginalModel& original);

struct Manifest {
  std::string gcomp;  ///< the version that wrote it
  RunState run;
  std::optional<double> loss_scale;  ///< where it is dynamic; for people, since the tensor counts
  CheckpointModel model;
  std::map<std::string, runtime::FileDigest> files;
  std::map<std::string, CheckpointTensor> tensors;
};

/// Ends in a line break. Throws UserError where a text of `run` is no JSON, or `config` no object.
std::string manifest_text(const Manifest& manifest);

/// A checkpoint of another format than kCheckpointFormat.
struct OtherFormat : UserError {
  using UserError::UserError;
};
/// Throws OtherFormat, or UserError (without a file's name) for anything else that is wrong: members that are missing or unknown,
/// pieces that leave out elements or overlap, names of files that are no plain names.
Manifest parse_manifest(std::string_view text);

/// A value of the configuration that is not as it was, as JSON; "" where there is none.
struct ConfigDifference {
  std::string field;  ///< "optimizer.lr"
  std::string checkpoint, now;
};
/// Objects are compared member by member, all else as a whole; in the order of the names. `ignored` are fields by their full names,
/// with all in them.
std::vector<ConfigDifference> config_differences(const std::string& checkpoint, const std::string& now,
                                                 const std::vector<std::string>& ignored = {});
/// "'lr' was 0.1 and is 0.2, 'batch' was 8 and is 16"; the first few.
std::string to_string(const std::vector<ConfigDifference>& differences);

}  // namespace gcomp::driver
