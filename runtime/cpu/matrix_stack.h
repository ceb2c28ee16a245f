// The matrices of a product's operand, one for each index of its batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/cpu/gemm.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

struct MatrixStack {
  std::byte* base = nullptr;
  std::vector<std::int64_t> offsets;  ///< of each matrix, in bytes
  std::int64_t row = 0, column = 0;   ///< strides, in elements

  StridedMatrix at(std::int64_t matrix) const { return {base + offsets[static_cast<std::size_t>(matrix)], row, column}; }
};

/// In row-major order of the batch dimensions. `base` is where the view's buffer starts. Throws InternalError where the call's view
/// has other dimensions than its batch.
MatrixStack make_matrix_stack(const MatmulCall& call, const MatrixView& view, const std::byte* base);

}  // namespace gcomp::runtime::cpu
