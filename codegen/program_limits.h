// What the kernels of one program may come to before a compiler is started for them.
#pragma once

#include <cstdint>

namespace gcomp::codegen {

struct ProgramLimits {
  std::int64_t kernels = 4096;                         ///< of different text
  std::int64_t kernel_bytes = std::int64_t{64} << 20;  ///< of text, of all kernels together
};

}  // namespace gcomp::codegen
