// The CPU: C++ text, products and convolutions of the runtime's own.
#pragma once

#include "codegen/target.h"

namespace gcomp::codegen::cpu {

extern const Target kTarget;

}  // namespace gcomp::codegen::cpu
