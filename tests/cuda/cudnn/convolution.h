// A convolution, or a gradient of one, by plain loops over any strides: what the emulated cuDNN computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/cuda/cudnn_api.h"

namespace gcomp::emulated {

using namespace gcomp::runtime::cuda;

/// Dimensions are n, c, spatial; of a weight o, c / groups, kernel.
struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t alignment = 1, identity = 0;
  std::vector<std::int64_t> dimensions, strides;

  /// Elements from the first to the last.
  std::int64_t extent() const;
};

/// Of sums: fixed ones are kept in double, others rounded after each term, so that their order shows.
enum class Order { fixed, forwards, backwards };
enum class Written { output, input, weight };

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

std::size_t bytes_of(cudnnDataType_t type);

}  // namespace gcomp::emulated
