// What a reader of an artifact demands of it: gcomp/artifact_trust.h.
#pragma once

#include "gcomp/artifact_trust.h"

namespace gcomp::runtime {

using gcomp::ArtifactTrust;

}  // namespace gcomp::runtime
