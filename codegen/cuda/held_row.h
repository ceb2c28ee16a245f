// A row that stays in shared memory, as it is in memory, where it is too long for registers and several passes read it: softmax
// with cross-entropy over 50,257 logits of 16 bits. Each thread finds there what it loaded itself, so that nobody waits for
// anybody.
//
//   extern __shared__ uint4 gc_held[];                                                declare()
//   gc_fetch_vector(p0 + i1 * 8, a2); h0[r] = a2; gc_unpack_vector(a2, a3);          load(), in the first pass that reads it
//   gc_unpack_vector(h0[r], a4);                                                     load(), in later ones
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/device_kernel.h"

namespace gcomp::codegen::cuda {

class HeldRow {
 public:
  /// The vectors that each pass reads, and how many vectors a row has; none is held where they take more than `shared_bytes`
  /// together.
  HeldRow(DeviceKernel& kernel, const Vectors& vectors, const std::vector<std::vector<int>>& reads_of_passes, std::int64_t row,
          std::int64_t shared_bytes);

  bool empty() const { return reads_.empty(); }
  bool holds(int read) const { return contains(reads_, read); }
  /// Of shared memory.
  std::int64_t bytes() const { return bytes_; }
  /// To and from it, for a row.
  std::int64_t moved_bytes() const { return moved_bytes_; }
  /// Whether a pass loads what is held.
  bool fills_in(int pass) const { return contains(first_, pass); }
  /// The reads that a pass finds there.
  std::vector<int> known(int pass) const;

  void declare();
  /// At step `r` of the row in a pass: these reads' statements stand for their values from here on.
  void load(int pass, const std::vector<int>& reads);

 private:
  std::int64_t bytes_of(int read) const;

  DeviceKernel& kernel_;
  const Vectors& vectors_;
  std::int64_t row_;
  std::vector<int> reads_, first_;  ///< and the pass that loads each
  std::vector<std::string> arrays_;
  std::int64_t bytes_ = 0, moved_bytes_ = 0;
};

}  // namespace gcomp::codegen::cuda
