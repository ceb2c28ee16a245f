#pragma once

#include "runtime/backend.h"

namespace gcomp::runtime::cpu {

extern const Backend kBackend;

}  // namespace gcomp::runtime::cpu
