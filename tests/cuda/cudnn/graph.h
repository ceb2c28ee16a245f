// A graph of products, pointwise operations, reductions and reshapes over tensors of four dimensions, computed one after the other:
// what the emulated cuDNN computes where the library has one engine for a pattern. It knows no pattern, so that what comes out is
// what the operations say.
#pragma once

#include <map>
#include <vector>

#include "tests/cuda/cudnn/tensor.h"

namespace gcomp::emulated {

struct Operation {
  enum class Kind { matmul, pointwise, reduction, reshape };

  Kind kind = Kind::pointwise;
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
  std::int64_t axis = 0;
  Tensor x, b, t, y;  ///< of a product a, b and c as x, b and y; those that it has not are without dimensions
};

struct Graph {
  std::vector<Operation> operations;
  std::map<std::int64_t, void*> memory;  ///< where tensors lie that are neither virtual nor given by value
  std::map<std::int64_t, float> values;  ///< those given by value

  /// Whether extents fit each other and every virtual tensor is made before it is read.
  bool fits() const;
  /// Those in memory, each once.
  std::vector<const Tensor*> tensors() const;
  void run(Order order) const;
};

}  // namespace gcomp::emulated
