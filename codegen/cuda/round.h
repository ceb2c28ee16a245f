// A round: several rows of a loop that one thread loads before it uses any of them, so that many loads are on their way at once and
// none waits for a store.
//
//   gc_vector<gc_bf16, 8> a0[4];                                                     declare()
//   for (int q = 0; q < 4; ++q) gc_fetch_vector(p0 + ..., a0[q]);                    fetch()
//   for (int q = 0; q < 4; ++q) { float a1[8]; gc_unpack_vector(a0[q], a1); ... }    take()
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/cuda/device_kernel.h"

namespace gcomp::codegen::cuda {

/// The reads of a nest by how a loop over rows loads them, as statements.
struct RowReads {
  std::vector<int> kept;     ///< vectors that are the same in every row: loaded once
  std::vector<int> vectors;  ///< vectors of each row
  std::vector<int> singles;  ///< one element of each row
};

/// Sorts what is read by whether it varies over the axes `rows`, as bits. Single elements become statements of their own too, but
/// for those that lie strided across a vector.
RowReads row_reads(FlatNest& nest, const Vectors& vectors, std::uint64_t rows);

/// What the reads of a row take.
struct RowCost {
  std::int64_t bytes = 0;           ///< of vectors, or where there are none of all
  std::int64_t registers = 0;       ///< of 4 bytes, as fetched
  std::int64_t kept_registers = 0;  ///< of the vectors that are loaded once
};
RowCost row_cost(const FlatNest& nest, const Vectors& vectors, const RowReads& reads);

/// Rows of a round: enough to have `kRoundBytes` on their way, where `rows` and the registers that are left allow.
int choose_round(const RowCost& cost, std::int64_t rows, std::int64_t registers);

class Round {
 public:
  /// Of `reads`, those that `vectors` and `singles` name.
  Round(DeviceKernel& kernel, const Vectors& vectors, std::vector<int> reads, std::vector<int> singles, int rows);

  /// Opens a loop over `q`, the rows of a round.
  void open();
  /// Declares what is fetched, outside of the loops.
  void declare();
  /// Within the first loop, the row's axes bound.
  void fetch();
  /// Within the second loop: the statements of the reads stand for what was fetched.
  void take();

 private:
  const ir::Statement& statement(int number) const { return kernel_.nest().statements[at(number)]; }

  DeviceKernel& kernel_;
  const Vectors& vectors_;
  std::vector<int> reads_, singles_;
  int rows_;
  std::map<int, std::string> names_;
};

}  // namespace gcomp::codegen::cuda
