// The options of the public classes as the driver takes them.
#pragma once

#include "gcomp/compile_options.h"
#include "gcomp/driver/compile.h"

namespace gcomp::driver {

GraphOptions graph_options(const gcomp::GraphOptions& options);
CompileHooks compile_hooks(const gcomp::CompileHooks& hooks);

}  // namespace gcomp::driver
