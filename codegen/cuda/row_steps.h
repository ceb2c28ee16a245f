// The loops of a group of threads over a row: step `k` of a thread, or just `r`, the number of its vector in the row.
//
// open(), where what a thread has of each step is in registers:
//     for (int k = 0; k < 6; ++k) { const unsigned r = k * 32u + lane;
// open(), else:
//     for (unsigned r = lane; r < 6288u; r += 512) {
// open_of_round():
//     for (int q = 0; q < 4; ++q) { const unsigned r = first + q * 512u;
// open_last(), a vector that is not whole:
//     if (lane == 144) { const unsigned r = 6288;
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/round.h"
#include "codegen/cuda/row_group.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

class RowSteps {
 public:
  /// A row of so many whole vectors along `axes`, and one more where `vectors` have a tail.
  RowSteps(DeviceKernel& kernel, const RowGroup& group, const Vectors& vectors, std::vector<int> axes, bool numbered, bool wide);

  const std::vector<int>& axes() const { return axes_; }
  std::int64_t whole() const { return row_; }
  std::int64_t count() const { return quotient_up(row_, group_.size); }
  /// Of the thread that has most, the last vector's among them.
  std::int64_t slots() const { return slots_; }
  bool numbered() const { return numbered_; }
  std::string count_type() const { return wide_ ? "unsigned long long" : "unsigned"; }

  /// Of groups without a row, whole warps leave. Lanes of a warp stay, since sums across it want all of them, and do nothing:
  /// behind a condition at each step, where the compiler waits for each step's loads by themselves.
  void leave_rest_out(std::int64_t rows, std::string_view leave);
  /// After the rows: all groups take part again.
  void all_live() { live_.clear(); }
  /// Whether the group has a row; "" where all do.
  const std::string& live() const { return live_; }

  // Each returns how many scopes it opened.

  /// The loop over the row, written out `turns` times.
  int open(std::int64_t turns);
  /// What follows the row's whole vectors is one more step of the lane whose turn it is.
  int open_last();
  /// The loop over rounds of so many steps.
  int open_rounds(int steps);
  /// Over the steps of a round; `step` is the number of one.
  int open_of_round(Round& round, std::int64_t steps, const std::string& step = "first + q");
  void close(int scopes);

 private:
  KernelWriter& w() { return kernel_.writer(); }
  std::string end() const { return live_.empty() ? concat(row_, "u") : concat("(", live_, " ? ", row_, "u : 0u)"); }

  DeviceKernel& kernel_;
  const RowGroup group_;
  std::vector<int> axes_;
  bool numbered_, wide_;
  std::int64_t row_, slots_;
  std::string live_;
};

}  // namespace gcomp::codegen::cuda
