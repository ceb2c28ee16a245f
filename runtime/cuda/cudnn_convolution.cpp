#include "runtime/cuda/cudnn_convolution.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace gcomp::runtime::cuda {
namespace {

constexpr std::int64_t kMostConvolutionWorkspace = 256 << 20;  // bytes
constexpr std::int64_t kIdentities[] = {1, 2, 3};              // of input, weight and output within a graph

/// Whatever the layout, dimensions are n, c, spatial; one spatial dimension becomes two.
struct Layout {
  std::vector<std::int64_t> dimensions, strides;
};
Layout layout_of(std::int64_t first, std::int64_t second, std::vector<std::int64_t> spatial, bool second_last) {
  if (spatial.size() == 1) spatial.insert(spatial.begin(), 1);
  Layout layout{{first, second}, std::vector<std::int64_t>(spatial.size() + 2)};
  layout.dimensions.insert(layout.dimensions.end(), spatial.begin(), spatial.end());
  std::int64_t next = second_last ? second : 1;
  if (second_last) layout.strides[1] = 1;
  for (std::size_t d = spatial.size() + 2; d-- > 2; next *= layout.dimensions[d]) layout.strides[d] = next;
  if (!second_last) {
    layout.strides[1] = next;
    next *= second;
  }
  layout.strides[0] = next;
  return layout;
}

std::vector<std::int64_t> with_two(std::vector<std::int64_t> spatial, std::int64_t added) {
  if (spatial.size() == 1) spatial.insert(spatial.begin(), added);
  return spatial;
}

bool is_negative(std::int64_t pad) { return pad < 0; }

/// Attributes of the three operations.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution;
  std::array<cudnnBackendAttributeName_t, 3> tensors;  ///< input, weight, output
};
OperationNames names_of(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}};
    case ConvolutionKind::input_gradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}};
    case ConvolutionKind::weight_gradient: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
}

/// Whether a weight has its channels last: it is packed, or has nothing to pack.
bool has_last_channels(const ConvolutionCall& call) {
  const bool is_one = std::all_of(call.kernel.begin(), call.kernel.end(), [](std::int64_t extent) { return extent == 1; });
  return call.channels_last && (!call.packing.launches.empty() || is_one || call.input_channels == call.groups);
}

std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::string shape_key(const ConvolutionCall& call) {
  std::string text = concat(static_cast<int>(call.kind), " ", name_of(call.dtype), call.channels_last ? " last " : " first ",
                            call.packing.launches.empty() ? "" : "packed ", call.batch, " ", call.input_channels, " ",
                            call.output_channels, " ", call.groups);
  for (const auto* list : {&call.input_spatial, &call.output_spatial, &call.kernel, &call.strides, &call.pads_begin, &call.pads_end,
                           &call.dilations}) {
    text += ' ';
    for (const std::int64_t value : *list) text += concat(":", value);
  }
  return text;
}

CudnnConvolution::CudnnConvolution(std::shared_ptr<const Cudnn> library, bool may_round)
    : library_(std::move(library)), plans_(library_, may_round, kMostConvolutionWorkspace) {}

std::unique_ptr<CudnnConvolution> CudnnConvolution::plan(std::shared_ptr<const Cudnn> library, const ConvolutionCall& call,
                                                         const ConvolutionBuffers& buffers, MatmulPrecision precision) {
  const auto has_negative = [](const std::vector<std::int64_t>& pads) {
    return std::any_of(pads.begin(), pads.end(), is_negative);
  };
  if (!cudnn_type_of(call.dtype) || has_negative(call.pads_begin) || has_negative(call.pads_end)) return nullptr;
  const bool may_round = call.dtype != DType::f32 || precision == MatmulPrecision::tf32;
  std::unique_ptr<CudnnConvolution> made(new CudnnConvolution(std::move(library), may_round));
  return made->describe(call, buffers) && made->plans_.next() ? std::move(made) : nullptr;
}

bool CudnnConvolution::describe(const ConvolutionCall& call, const ConvolutionBuffers& buffers) {
  return describe_tensor(0, call, buffers.input) && describe_tensor(1, call, buffers.weight) &&
         describe_tensor(2, call, buffers.output) && describe_convolution(call) && describe_operation(call) &&
         plans_.describe({&operation_, 1});
}

bool CudnnConvolution::describe_tensor(std::size_t which, const ConvolutionCall& call, CUdeviceptr address) {
  const Layout layouts[] = {
      layout_of(call.batch, call.input_channels, call.input_spatial, call.channels_last),
      layout_of(call.output_channels, call.input_channels / call.groups, call.kernel, has_last_channels(call)),
      layout_of(call.batch, call.output_channels, call.output_spatial, call.channels_last)};
  CudnnDescriptor tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const bool described = tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, *cudnn_type_of(call.dtype)) &&
                         tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, layouts[which].dimensions) &&
                         tensor.set(CUDNN_ATTR_TENSOR_STRIDES, layouts[which].strides) &&
                         tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, kIdentities[which]) &&
                         tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, cudnn_alignment_of(address)) &&
                         tensor.finalize();
  tensors_[which] = std::move(tensor);
  return described;
}

bool CudnnConvolution::describe_convolution(const ConvolutionCall& call) {
  const std::vector<std::int64_t> strides = with_two(call.strides, 1), dilations = with_two(call.dilations, 1),
                                  before = with_two(call.pads_begin, 0), after = with_two(call.pads_end, 0);
  convolution_ = CudnnDescriptor(library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t sums = call.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  return convolution_.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(strides.size())) &&
         convolution_.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sums) &&
         convolution_.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION) &&
         convolution_.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides) &&
         convolution_.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations) &&
         convolution_.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before) &&
         convolution_.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after) && convolution_.finalize();
}

bool CudnnConvolution::describe_operation(const ConvolutionCall& call) {
  const OperationNames names = names_of(call.kind);
  operation_ = CudnnDescriptor(library_, names.type);
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!operation_.set(names.tensors[i], tensors_[i])) return false;
  const auto set_factor = [&](cudnnBackendAttributeName_t name, double factor) {
    return call.dtype == DType::f64 ? operation_.set(name, CUDNN_TYPE_DOUBLE, factor)
                                    : operation_.set(name, CUDNN_TYPE_FLOAT, static_cast<float>(factor));
  };
  return operation_.set(names.convolution, convolution_) && set_factor(names.alpha, 1) && set_factor(names.beta, 0) &&
         operation_.finalize();
}

CudnnTrial CudnnConvolution::trial(const ConvolutionCall& call) const {
  const std::int64_t weights = call.output_channels * (call.input_channels / call.groups) * product_of(call.kernel);
  return {.shape = shape_key(call),
          .origin = call.origin,
          .blocks = {{call.dtype, call.batch * call.input_channels * product_of(call.input_spatial),
                      call.kind == ConvolutionKind::input_gradient},
                     {call.dtype, weights, call.kind == ConvolutionKind::weight_gradient},
                     {call.dtype, call.batch * call.output_channels * product_of(call.output_spatial),
                      call.kind == ConvolutionKind::forward}},
          .queue = [this, &call](const std::vector<CUdeviceptr>& blocks, CUdeviceptr workspace, CUstream stream) {
            queue(call, {blocks[0], blocks[1], blocks[2]}, workspace, stream);
          }};
}

void CudnnConvolution::queue(const ConvolutionCall& call, const ConvolutionBuffers& buffers, CUdeviceptr workspace,
                             CUstream stream) const {
  CudnnBinding binding;
  binding.add(kIdentities[0], buffers.input);
  binding.add(kIdentities[1], buffers.weight);
  binding.add(kIdentities[2], buffers.output);
  plans_.queue(binding, workspace, stream, call.origin);
}

}  // namespace gcomp::runtime::cuda
