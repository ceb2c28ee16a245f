// Host libraries of texts compiled before, on disk, so that tests do not compile the same kernel again in each process. It is the
// tests' own: the runtime's cache of cubins is another.
#pragma once

#include <string>
#include <vector>

#include "tests/cuda/shim/host_module.h"

namespace gcomp::emulated {

/// Compiles the text, or takes what an earlier process made of it: from GCOMP_EMULATED_NVRTC_CACHE, else
/// $XDG_CACHE_HOME/gcomp-emulated-nvrtc, else ~/.cache/gcomp-emulated-nvrtc. A folder that cannot be written is no error.
cuda_shim::HostCompilation compile_cached(const std::string& text);

}  // namespace gcomp::emulated
