// A compiled model as one file (.gcx), a zip archive that `unzip` opens:
//   manifest.json          format, versions, target, and size and SHA-256 of every other entry
//   programs/NAME.pb       the programs (runtime/program.proto)
//   kernels/NAME/K.cpp|cu  their kernels' text, for people; the prelude they share beside them
//   cpu/..., cubins/...    binaries made from that text
//   weights.safetensors    the model's state, where it is kept
//   model.onnx             the file that it was compiled from, where that is kept whole
//   signature.json         who signed it: an Ed25519 signature of manifest.json, and so of everything
// An artifact holds code: read only those whose origin you trust, or ask for a signature, or have its kernels compiled from their
// text (runtime/artifact_trust.h). Damage is found all the same, before anything is loaded.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/artifact_trust.h"
#include "runtime/program.h"

namespace gcomp::runtime {

class PrivateKey;

struct Artifact {
  std::vector<Program> programs;                                         ///< of distinct names and one target
  std::vector<std::pair<std::string, std::vector<std::byte>>> binaries;  ///< "cpu/step.so", "cubins/sm_90/k0.cubin" to bytes
  std::map<std::string, Tensor> weights;                                 ///< by the state's name
  std::vector<std::byte> model;                                          ///< the ONNX file; empty where it is not kept
  std::map<std::string, std::string> metadata;

  bool operator==(const Artifact&) const = default;
};

/// What this gcomp writes, and the only schema that it reads.
inline constexpr int kArtifactSchema = 2;

/// Writes atomically; equal artifacts give equal bytes. Throws UserError where the file cannot be written.
void write_artifact(const std::filesystem::path& path, const Artifact& artifact);

/// Throws UserError naming the file and, where there is one, the entry that is damaged, missing or too many; and where the artifact
/// is not signed as `trust` asks.
Artifact read_artifact(const std::filesystem::path& path, const ArtifactTrust& trust = {});
/// Its metadata alone; nothing else of it is read or checked. Throws UserError where there is no artifact of this schema.
std::map<std::string, std::string> read_artifact_metadata(const std::filesystem::path& path);

/// Writes the artifact `from` to `to`, which may be the same, with a signature by `key` in place of any that it has.
void sign_artifact(const std::filesystem::path& from, const std::filesystem::path& to, const PrivateKey& key);
/// PublicKey::id() of the key that the artifact says it is signed with, unchecked; "" where it is not signed.
std::string signer_of(const std::filesystem::path& path);

}  // namespace gcomp::runtime
