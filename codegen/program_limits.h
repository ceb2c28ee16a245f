// What the kernels of one program may come to before a compiler is started for them.
#pragma once

#include "gcomp/limits.h"

namespace gcomp::codegen {

using gcomp::ProgramLimits;

}  // namespace gcomp::codegen
