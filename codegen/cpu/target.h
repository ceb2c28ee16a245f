// The CPU: C++ text, oneDNN's convolutions, products of the runtime's own.
#pragma once

#include "codegen/target.h"

namespace gcomp::codegen::cpu {

extern const Target kTarget;

}  // namespace gcomp::codegen::cpu
