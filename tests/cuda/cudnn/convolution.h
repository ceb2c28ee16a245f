// A convolution, or a gradient of one, by plain loops over any strides: what the emulated cuDNN computes.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/cuda/cudnn/tensor.h"

namespace gcomp::emulated {

enum class Written { output, input, weight };

/// Dimensions are n, c, spatial; of a weight o, c / groups, kernel.
struct Convolution {
  Written written = Written::output;
  Tensor input, weight, output;
  std::vector<std::int64_t> strides, dilations, before, after;
  bool rounds_to_tf32 = false;

  const Tensor& result() const;
  std::int64_t groups() const { return input.dimensions[1] / weight.dimensions[1]; }
  /// Whether dimensions, strides and types fit each other.
  bool fits() const;
  void run(const void* input, const void* weight, const void* output, Order order) const;
};

}  // namespace gcomp::emulated
