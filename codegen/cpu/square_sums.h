// Sums of squares on the CPU (codegen/square_sums.h).
#pragma once

#include <string>

#include "ir/base/dtype.h"

namespace gcomp::codegen::cpu {

/// For elements of f32 or f64. 16 sums side by side, joined as a tree.
std::string square_sums_text(DType dtype);

}  // namespace gcomp::codegen::cpu
