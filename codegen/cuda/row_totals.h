// The totals of a row's reductions: declared before a pass, added to for each element, combined across the group after it.
//
//   float s4 = 0;                                            declare()
//   for (...) s4 += v7;                                      accumulate()
//   s4 = gc_combine_lanes<32>(s4, gc_combine_sum());         combine()
#pragma once

#include <map>
#include <string>

#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/row_group.h"

namespace gcomp::codegen::cuda {

class RowTotals {
 public:
  RowTotals(DeviceKernel& kernel, const RowGroup& group) : kernel_(kernel), group_(group) {}

  /// The name of one.
  std::string declare(const ir::Statement& s);
  /// For the element that is being written.
  void accumulate(const ir::Statement& s, const std::string& total);
  /// The total over the group, rounded to the statement's dtype, stands for the statement from here on.
  void combine(int number, const std::string& total);

 private:
  KernelWriter& w() { return kernel_.writer(); }
  /// One array for each type: combining leaves it free for the next, and a block has 48 KiB.
  std::string shared(const ir::Statement& s);

  DeviceKernel& kernel_;
  const RowGroup group_;
  std::map<std::string, std::string> shared_;  // by type
};

}  // namespace gcomp::codegen::cuda
