// Where NVIDIA's libraries may be, as a caller says it. Nothing here reads the environment: the tools pass it in.
#pragma once

#include <functional>

#include "gcomp/device_options.h"

namespace gcomp::runtime {

using gcomp::kAllLibraries;
using gcomp::LibraryKind;
using gcomp::LibrarySearch;

/// A search from CUDA_HOME or CUDA_PATH, CONDA_PREFIX, VIRTUAL_ENV and HOME, each asked of `variable` (such as getenv; null where
/// unset).
LibrarySearch search_by_variables(const std::function<const char*(const char*)>& variable);

}  // namespace gcomp::runtime
