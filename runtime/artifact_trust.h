// What a reader of an artifact demands of it before anything in it is loaded: an artifact holds code.
#pragma once

#include <filesystem>

namespace gcomp::runtime {

struct ArtifactTrust {
  /// A file with a public Ed25519 key (PEM) whose signature the artifact must bear; empty where none is asked for.
  std::filesystem::path signed_by = {};
  /// Whether machine code in the artifact is loaded. Without it the kernels are compiled from the text that the artifact carries.
  bool binaries = true;
};

}  // namespace gcomp::runtime
