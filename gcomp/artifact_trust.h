// What a reader of an artifact demands of it before anything in it is loaded: an artifact holds code.
#pragma once

#include "gcomp/path.h"

namespace gcomp {

struct ArtifactTrust {
  /// A file with a public Ed25519 key (PEM) whose signature the artifact must bear; empty where none is asked for.
  Path signed_by = {};
  /// Whether machine code in the artifact is loaded. Without it the kernels are compiled from the text that the artifact carries.
  bool binaries = true;
};

}  // namespace gcomp
