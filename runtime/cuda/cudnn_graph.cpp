#include "runtime/cuda/cudnn_graph.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr std::int64_t kAlignmentOfValues = 16;

bool is_comparison(cudnnPointwiseMode_t mode) { return mode == CUDNN_POINTWISE_CMP_GE; }

CudnnDescriptor pointwise_mode(const std::shared_ptr<const Cudnn>& library, cudnnPointwiseMode_t mode, bool& accepted) {
  CudnnDescriptor made(library, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  accepted =
      made.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode) &&
      made.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, is_comparison(mode) ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  return made;
}

}  // namespace

CudnnExtents row_major(const CudnnExtents& extents) {
  CudnnExtents strides;
  std::int64_t next = 1;
  for (std::size_t d = extents.size(); d-- > 0; next *= extents[d]) strides[d] = next;
  return strides;
}

CudnnGraph::Tensor CudnnGraph::memory(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides,
                                      CUdeviceptr address) {
  return add(type, extents, strides, Place::memory, cudnn_alignment_of(address));
}

CudnnGraph::Tensor CudnnGraph::scalar() {
  return add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, Place::value, kAlignmentOfValues);
}

CudnnGraph::Tensor CudnnGraph::between(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides) {
  return add(type, extents, strides, Place::between, kAlignmentOfValues);
}

CudnnGraph::Tensor CudnnGraph::between(cudnnDataType_t type, const CudnnExtents& extents) {
  return between(type, extents, row_major(extents));
}

CudnnGraph::Tensor CudnnGraph::add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, Place place,
                                   std::int64_t alignment) {
  CudnnDescriptor tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto identity = static_cast<Tensor>(tensors_.size() + 1);
  const bool is_virtual = place == Place::between, by_value = place == Place::value;
  accepted_ = accepted_ && tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type) &&
              tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents) && tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides) &&
              tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, identity) &&
              tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment) &&
              tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual) &&
              tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value) && tensor.finalize();
  tensors_.push_back(std::move(tensor));
  return identity;
}

void CudnnGraph::keep(CudnnDescriptor operation, bool accepted) {
  accepted_ = accepted_ && accepted && operation.finalize();
  operations_.push_back(std::move(operation));
}

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  CudnnDescriptor how(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR), made(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  const bool accepted = how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT) && how.finalize() &&
                        made.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a)) && made.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b)) &&
                        made.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c)) && made.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  parts_.push_back(std::move(how));
  keep(std::move(made), accepted);
}

void CudnnGraph::add_pointwise(CudnnDescriptor mode, Tensor x, Tensor b, Tensor t, Tensor y) {
  CudnnDescriptor made(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  const bool accepted =
      mode.finalize() && made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode) &&
      made.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x)) && (b == 0 || made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b))) &&
      (t == 0 || made.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(t))) && made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  parts_.push_back(std::move(mode));
  keep(std::move(made), accepted);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
  bool accepted = false;
  CudnnDescriptor how = pointwise_mode(library_, mode, accepted);
  accepted_ = accepted_ && accepted;
  add_pointwise(std::move(how), x, b, 0, y);
}

void CudnnGraph::select(Tensor x, Tensor b, Tensor t, Tensor y) {
  bool accepted = false;
  CudnnDescriptor how = pointwise_mode(library_, CUDNN_POINTWISE_BINARY_SELECT, accepted);
  accepted_ = accepted_ && accepted;
  add_pointwise(std::move(how), x, b, t, y);
}

void CudnnGraph::index(std::int64_t axis, Tensor x, Tensor y) {
  bool accepted = false;
  CudnnDescriptor how = pointwise_mode(library_, CUDNN_POINTWISE_GEN_INDEX, accepted);
  accepted_ = accepted_ && accepted && how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  add_pointwise(std::move(how), x, 0, 0, y);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y) {
  CudnnDescriptor how(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), made(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  const bool accepted = how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT) &&
                        how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation) && how.finalize() &&
                        made.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x)) &&
                        made.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y)) && made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  parts_.push_back(std::move(how));
  keep(std::move(made), accepted);
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  CudnnDescriptor made(library_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  const bool accepted = made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x)) && made.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  keep(std::move(made), accepted);
}

}  // namespace gcomp::runtime::cuda
