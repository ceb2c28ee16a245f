#include "codegen/cuda/row_group.h"

#include <algorithm>

#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/strip_sums.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {
namespace {

constexpr std::int64_t kManyBlocks = 1024;      // enough to fill the largest devices several times
constexpr std::int64_t kWarpRow = 512;          // vectors that one warp still covers well
constexpr std::int64_t kStripRegisters = 96;    // for the sums of a thread's columns
constexpr std::int64_t kStripBytes = 40 << 10;  // of shared memory where a block joins them

}  // namespace

RowGroup choose_row_group(std::int64_t rows, std::int64_t vectors_a_row) {
  if (vectors_a_row <= 32) return {256, power_of_two_above(vectors_a_row, 32)};
  if (vectors_a_row <= kWarpRow && rows >= kManyBlocks) return {256, 32};
  // About four vectors a thread, more where rows are long.
  const int threads = std::max(64, power_of_two_above((vectors_a_row + 3) / 4, kMostRowThreads));
  return {threads, threads};
}

RowGroup choose_strip_group(const FlatNest& nest, std::int64_t vectors_a_row, int width) {
  const auto columns = [&](const RowGroup& group) { return quotient_up(vectors_a_row, group.size) * width; };
  const auto fits = [&](const RowGroup& group) { return columns(group) * registers_a_column(nest) <= kStripRegisters; };
  RowGroup group{256, power_of_two_above(vectors_a_row, 32)};
  if (fits(group) && joined_bytes(nest, columns(group) * group.size, group.count()) <= kStripBytes) return group;
  group.threads = group.size = std::max(64, power_of_two_above((vectors_a_row + 3) / 4, kMostRowThreads));
  while (!fits(group) && group.threads < kMostRowThreads) group.threads = group.size = group.threads * 2;
  return group;
}

}  // namespace gcomp::codegen::cuda
