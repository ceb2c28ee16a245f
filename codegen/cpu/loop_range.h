// Where a vector loop runs, for what is computed before it.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/kernel_writer.h"

namespace gcomp::codegen::cpu {

/// Positions `begin` to `begin + count` - 1 of `axis`, both as text, `most` of them at most.
struct LoopRange {
  int axis = 0;
  std::string begin, count;
  std::int64_t most = 0;
  int lane_axis = -1;  ///< an axis that counts the positions from 0; none where negative
};

}  // namespace gcomp::codegen::cpu
