#include "runtime/cpu/convolution.h"

#include <cstring>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_depthwise.h"
#include "runtime/cpu/convolution_few.h"
#include "runtime/cpu/convolution_half.h"
#include "runtime/cpu/convolution_product.h"
#include "runtime/cpu/convolution_shape.h"
#include "runtime/cpu/convolution_winograd.h"

namespace gcomp::runtime::cpu {
namespace {

/// A gradient or result over nothing: zeros.
class ZeroFill final : public LibraryCall {
 public:
  ZeroFill(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}

  WorkspaceSize workspace() const override { return {}; }
  void bind(const Workspace&, int) override {}
  void run(ThreadPool&) override {
    if (bytes_ > 0) std::memset(data_, 0, static_cast<std::size_t>(bytes_));
  }

 private:
  std::byte* data_;
  std::int64_t bytes_;
};

void check_lengths(const ConvolutionCall& call) {
  const std::size_t rank = call.input_spatial.size();
  bool same = rank >= 1 && rank <= 3;
  for (const auto* extents : {&call.output_spatial, &call.kernel, &call.strides, &call.pads_begin, &call.pads_end, &call.dilations})
    same = same && extents->size() == rank;
  check_internal(same, call.origin, ": a convolution's extents must all have the same 1 to 3 dimensions");
  check_internal(call.groups > 0 && call.input_channels % call.groups == 0 && call.output_channels % call.groups == 0, call.origin,
                 ": ", call.input_channels, " and ", call.output_channels, " channels in ", call.groups, " groups");
}

}  // namespace

ConvolutionShape shape_of(const ConvolutionCall& call) {
  check_lengths(call);
  ConvolutionShape shape;
  shape.batch = call.batch;
  shape.groups = call.groups;
  shape.group_inputs = call.input_channels / call.groups;
  shape.group_outputs = call.output_channels / call.groups;
  const std::size_t rank = call.input_spatial.size(), first = 3 - rank;
  for (std::size_t i = 0; i < rank; ++i) {
    shape.input[first + i] = call.input_spatial[i];
    shape.output[first + i] = call.output_spatial[i];
    shape.kernel[first + i] = call.kernel[i];
    shape.stride[first + i] = call.strides[i];
    shape.pad[first + i] = call.pads_begin[i];
    shape.dilation[first + i] = call.dilations[i];
  }
  const auto strides = [&](std::int64_t channels, std::int64_t positions) -> ActivationStrides {
    if (call.channels_last) return {channels * positions, 1, channels};
    return {channels * positions, positions, 1};
  };
  shape.input_strides = strides(call.input_channels, shape.input_positions());
  shape.output_strides = strides(call.output_channels, shape.positions());
  return shape;
}

ConvolutionElements elements_of(const ConvolutionCall& call) {
  const ConvolutionShape shape = shape_of(call);
  return {call.batch * call.input_channels * shape.input_positions(), shape.weights(),
          call.batch * call.output_channels * shape.positions()};
}

std::unique_ptr<LibraryCall> make_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  check_internal(is_float(call.dtype), call.origin, ": no convolution of ", name_of(call.dtype));
  const ConvolutionElements counts = elements_of(call);
  if (counts.input == 0 || counts.weight == 0 || counts.output == 0) {
    const auto element = static_cast<std::int64_t>(size_of(call.dtype));
    switch (call.kind) {
      case ConvolutionKind::forward: return std::make_unique<ZeroFill>(operands.output, counts.output * element);
      case ConvolutionKind::input_gradient: return std::make_unique<ZeroFill>(operands.input, counts.input * element);
      case ConvolutionKind::weight_gradient: return std::make_unique<ZeroFill>(operands.weight, counts.weight * element);
    }
  }
  if (call.dtype == DType::f16 || call.dtype == DType::bf16) return make_half_convolution(call, operands);
  if (operands.backend.winograd && takes_winograd(call)) return make_winograd_convolution(call, operands);
  if (takes_depthwise(call)) return make_depthwise_convolution(call, operands);
  if (takes_few_results(call)) return make_few_results_convolution(call, operands);
  if (!takes_blocked(call)) return make_unfolded_convolution(call, operands);
  return is_matrix_product(call) ? make_convolution_product(call, operands) : make_blocked_convolution(call, operands);
}

}  // namespace gcomp::runtime::cpu
