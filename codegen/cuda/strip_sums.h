// Column sums of a kernel of rows (codegen/column_sums.h). A block takes a strip of rows, each group of its threads every so many
// of them; a thread adds what passes by to totals of its own columns, in registers:
//
//   float s0[24] = {};                                                          declare()
//   for (rows of the strip) ... for (k) for (u) s0[k * 8 + u] += v1;            accumulate()
//   gc_combine_columns<32, 8>(s0, gc_combine_sum(), m0);                        join()
//   for (k) for (u) p7[...] = s0[k * 8 + u];                                    bind(), by whoever stores them
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/device_kernel.h"

namespace gcomp::codegen::cuda {

/// Registers of 4 bytes that the totals of all column sums of a nest take for each column.
std::int64_t registers_a_column(const FlatNest& nest);
/// The most bytes of shared memory that joining `columns` over so many groups takes.
std::int64_t joined_bytes(const FlatNest& nest, std::int64_t columns, int groups);

class StripSums {
 public:
  /// Threads `size` of each of `groups` have a row, and each of them `columns`, in vectors.
  StripSums(DeviceKernel& kernel, const Vectors& vectors, int size, int groups, std::int64_t columns);

  const std::vector<const Store*>& stores() const { return stores_; }
  bool empty() const { return stores_.empty(); }

  void declare();
  /// For the lane that is being written, of step `k` of the row.
  void accumulate();
  /// After the strip: each thread's totals become those of the block.
  void join();
  /// For the lane that is being written: the statements of the stores stand for the joined totals.
  void bind();

 private:
  std::string place(std::size_t sum);

  DeviceKernel& kernel_;
  const Vectors& vectors_;
  int size_, groups_;
  std::int64_t columns_;
  std::vector<const Store*> stores_;
  std::vector<std::string> totals_;  // by store
};

}  // namespace gcomp::codegen::cuda
