#include "tests/cuda/cudnn/tensor.h"

#include "ir/base/dtype.h"

namespace gcomp::emulated {

double load(const void* data, std::int64_t at, cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return static_cast<double>(static_cast<const float*>(data)[at]);
    case CUDNN_DATA_DOUBLE: return static_cast<const double*>(data)[at];
    case CUDNN_DATA_HALF: return static_cast<double>(f16_to_float(static_cast<const std::uint16_t*>(data)[at]));
    case CUDNN_DATA_INT32: return static_cast<double>(static_cast<const std::int32_t*>(data)[at]);
    case CUDNN_DATA_BOOLEAN: return static_cast<double>(static_cast<const bool*>(data)[at]);
    case CUDNN_DATA_BFLOAT16: break;
  }
  return static_cast<double>(bf16_to_float(static_cast<const std::uint16_t*>(data)[at]));
}

void store(void* data, std::int64_t at, cudnnDataType_t type, double value) {
  switch (type) {
    case CUDNN_DATA_FLOAT: static_cast<float*>(data)[at] = static_cast<float>(value); return;
    case CUDNN_DATA_DOUBLE: static_cast<double*>(data)[at] = value; return;
    case CUDNN_DATA_HALF: static_cast<std::uint16_t*>(data)[at] = float_to_f16(static_cast<float>(value)); return;
    case CUDNN_DATA_INT32: static_cast<std::int32_t*>(data)[at] = static_cast<std::int32_t>(value); return;
    case CUDNN_DATA_BOOLEAN: static_cast<bool*>(data)[at] = value != 0; return;
    case CUDNN_DATA_BFLOAT16: break;
  }
  static_cast<std::uint16_t*>(data)[at] = float_to_bf16(static_cast<float>(value));
}

std::size_t bytes_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BOOLEAN: return 1;
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_FLOAT: return 4;
    case CUDNN_DATA_DOUBLE: return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
  }
  return 0;
}

std::int64_t Tensor::extent() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < dimensions.size(); ++d) last += (dimensions[d] - 1) * strides[d];
  return last + 1;
}

}  // namespace gcomp::emulated
