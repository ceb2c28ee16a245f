// Tensors as the emulated cuDNN sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/cuda/cudnn_api.h"

namespace gcomp::emulated {

using namespace gcomp::runtime::cuda;

struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t alignment = 1, identity = 0;
  std::vector<std::int64_t> dimensions, strides;
  bool is_virtual = false, by_value = false;

  /// Elements from the first to the last.
  std::int64_t extent() const;
};

/// Of sums: fixed ones are kept in double, others rounded after each term, so that their order shows.
enum class Order { fixed, forwards, backwards };

std::size_t bytes_of(cudnnDataType_t type);
double load(const void* data, std::int64_t at, cudnnDataType_t type);
void store(void* data, std::int64_t at, cudnnDataType_t type, double value);

}  // namespace gcomp::emulated
