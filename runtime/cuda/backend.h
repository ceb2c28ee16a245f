#pragma once

#include "runtime/backend.h"

namespace gcomp::runtime::cuda {

extern const Backend kBackend;

}  // namespace gcomp::runtime::cuda
