// A graph of cuDNN's operations over tensors of four dimensions. Tensors between operations are virtual: an engine that knows the
// whole graph keeps them in registers.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "runtime/cuda/cudnn.h"

namespace gcomp::runtime::cuda {

using CudnnExtents = std::array<std::int64_t, 4>;

class CudnnGraph {
 public:
  using Tensor = std::int64_t;  ///< its identity, from 1 on

  explicit CudnnGraph(std::shared_ptr<const Cudnn> library) : library_(std::move(library)) {}

  /// In memory; of the address only the alignment counts.
  Tensor memory(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, CUdeviceptr address);
  /// One f32 that is given by value.
  Tensor scalar();
  /// Between operations.
  Tensor between(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides);
  /// Likewise, row major.
  Tensor between(cudnnDataType_t type, const CudnnExtents& extents);

  /// c[b, h, m, n] = sum over k of a[b, h, m, k] * b[b, h, k, n], in f32.
  void matmul(Tensor a, Tensor b, Tensor c);
  /// y = mode(x) or mode(x, b), in f32; what a comparison gives is boolean.
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y) { pointwise(mode, x, 0, y); }
  /// y = t ? x : b.
  void select(Tensor x, Tensor b, Tensor t, Tensor y);
  /// y = position along `axis`; of x only the extents count.
  void index(std::int64_t axis, Tensor x, Tensor y);
  /// Over the dimensions in which y has one element.
  void reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y);
  /// The elements of x under other extents and strides.
  void reshape(Tensor x, Tensor y);

  /// Whether the library has taken everything so far.
  bool accepted() const { return accepted_; }
  std::span<const CudnnDescriptor> operations() const { return operations_; }

 private:
  enum class Place { memory, value, between };

  Tensor add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, Place place, std::int64_t alignment);
  const CudnnDescriptor& at(Tensor tensor) const { return tensors_[static_cast<std::size_t>(tensor - 1)]; }
  void add_pointwise(CudnnDescriptor mode, Tensor x, Tensor b, Tensor t, Tensor y);
  void keep(CudnnDescriptor operation, bool accepted);

  std::shared_ptr<const Cudnn> library_;
  std::vector<CudnnDescriptor> tensors_, parts_, operations_;  // parts: what operations refer to beside tensors
  bool accepted_ = true;
};

CudnnExtents row_major(const CudnnExtents& extents);

}  // namespace gcomp::runtime::cuda
