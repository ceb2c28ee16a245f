// Numbers for products that are tried before there is data: the same ones each time, in [-1, 1), without order. Sums of them depend
// on their order, and they draw the power that a training's do, which equal numbers do not.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/base/tensor.h"
#include "runtime/cuda/session.h"

namespace gcomp::runtime::cuda {

class TrialNumbers {
 public:
  /// Fills so many elements from the address on, and returns when they are there; what is of integers gets zeros. `origin` is for
  /// messages.
  void fill(const Session& session, CUdeviceptr address, DType dtype, std::int64_t elements, const std::string& origin);

 private:
  const Tensor& pattern(DType dtype, std::int64_t elements);

  std::map<DType, Tensor> patterns_;  // which come again and again
};

}  // namespace gcomp::runtime::cuda
