// Sums of squares on a GPU (codegen/square_sums.h): a block of threads for each block of elements.
#pragma once

#include <string>

#include "ir/base/dtype.h"

namespace gcomp::codegen::cuda {

inline constexpr int kSquareSumThreads = 256;

/// For elements of f32 or f64.
std::string square_sums_text(DType dtype);

}  // namespace gcomp::codegen::cuda
