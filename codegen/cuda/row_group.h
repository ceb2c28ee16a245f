// How many threads share a row of a kernel of rows, and how many rows a block has at once.
#pragma once

#include <cstdint>

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

inline constexpr int kMostRowThreads = 512;  // of a block: leaves each 128 registers

/// The threads that share a row.
struct RowGroup {
  int threads = 256;  ///< of a block
  int size = 32;      ///< of a group: a part of a warp, or the block

  bool is_block() const { return size == threads; }
  int count() const { return threads / size; }
};

/// For so many rows of so many vectors.
RowGroup choose_row_group(std::int64_t rows, std::int64_t vectors_a_row);
/// For strips of rows whose columns are summed beside: threads enough that each of them has the totals of its columns in registers.
RowGroup choose_strip_group(const FlatNest& nest, std::int64_t vectors_a_row, int width);

}  // namespace gcomp::codegen::cuda
