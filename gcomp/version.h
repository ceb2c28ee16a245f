#pragma once

#include <string_view>

namespace gcomp {

/// gcomp's version, as CMake's project() states it: "0.1.0".
std::string_view version();

}  // namespace gcomp
