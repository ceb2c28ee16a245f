#include "runtime/cpu/convolution.h"

#include <cstring>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_depthwise.h"
#include "runtime/cpu/convolution_product.h"
#include "runtime/cpu/convolution_shape.h"
#include "runtime/cpu/convolution_winograd.h"

namespace gcomp::runtime::cpu {
namespace {

/// Elements of the call's three buffers.
struct ElementCounts {
  std::int64_t input, weight, output;
};

ElementCounts element_counts(const ConvolutionCall& call) {
  const ConvolutionShape shape = shape_of(call);
  return {call.batch * call.input_channels * shape.input_positions(), shape.weights(),
          call.batch * call.output_channels * shape.positions()};
}

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

/// f16 and bf16: both operands widened to f32 in scratch, convolved there, the result rounded once.
class ConvertedConvolution final : public LibraryCall {
 public:
  ConvertedConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : dtype_(call.dtype), wide_call_(call), backend_(operands.backend) {
    wide_call_.dtype = DType::f32;
    const ElementCounts counts = element_counts(call);
    std::int64_t offset = 0;
    const auto add = [&](std::byte* data, std::int64_t count, bool written) {
      tensors_.push_back({reinterpret_cast<std::uint16_t*>(data), count, offset, written});
      offset += aligned_size(count * 4);
    };
    add(operands.input, counts.input, call.kind == ConvolutionKind::input_gradient);
    add(operands.weight, counts.weight, call.kind == ConvolutionKind::weight_gradient);
    add(operands.output, counts.output, call.kind == ConvolutionKind::forward);
    wide_bytes_ = offset;
    // Only for its workspace: the addresses follow when the scratch memory is known.
    inner_ = make_convolution(wide_call_, operands);
  }

  WorkspaceSize workspace() const override {
    WorkspaceSize size = inner_->workspace();
    size.shared += wide_bytes_;
    return size;
  }

  void bind(const Workspace& workspace, int threads) override {
    wide_ = workspace.shared;
    inner_ = make_convolution(wide_call_,
                              {wide_ + tensors_[0].offset, wide_ + tensors_[1].offset, wide_ + tensors_[2].offset, backend_});
    Workspace rest = workspace;
    rest.shared += wide_bytes_;
    inner_->bind(rest, threads);
  }

  void run(ThreadPool& pool) override {
    for (const Narrow& tensor : tensors_)
      if (!tensor.written) widen(pool, tensor);
    inner_->run(pool);
    for (const Narrow& tensor : tensors_)
      if (tensor.written) narrow(pool, tensor);
  }

 private:
  struct Narrow {
    std::uint16_t* data;
    std::int64_t count, offset;  // elements; bytes from wide_
    bool written;
  };

  static constexpr std::int64_t kTaskElements = 8192;

  /// convert(first element, how many) in portions.
  template <class Convert>
  static void for_elements(ThreadPool& pool, const Narrow& tensor, Convert convert) {
    pool.run(quotient_up(tensor.count, kTaskElements), [&](std::int64_t first, std::int64_t last, int) {
      convert(first * kTaskElements, std::min(last * kTaskElements, tensor.count) - first * kTaskElements);
    });
  }

  void widen(ThreadPool& pool, const Narrow& tensor) const {
    const auto convert = dtype_ == DType::f16 ? backend_.gemm->half.widen_f16 : backend_.gemm->half.widen_bf16;
    for_elements(pool, tensor, [&](std::int64_t at, std::int64_t count) {
      convert(tensor.data + at, reinterpret_cast<float*>(wide_ + tensor.offset) + at, count);
    });
  }

  void narrow(ThreadPool& pool, const Narrow& tensor) const {
    const auto convert = dtype_ == DType::f16 ? backend_.gemm->half.narrow_f16 : backend_.gemm->half.narrow_bf16;
    for_elements(pool, tensor, [&](std::int64_t at, std::int64_t count) {
      convert(reinterpret_cast<const float*>(wide_ + tensor.offset) + at, tensor.data + at, count);
    });
  }

  DType dtype_;
  ConvolutionCall wide_call_;
  CallBackend backend_;
  std::vector<Narrow> tensors_;
  std::int64_t wide_bytes_ = 0;
  std::byte* wide_ = nullptr;
  std::unique_ptr<LibraryCall> inner_;
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

std::unique_ptr<LibraryCall> make_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  check_internal(is_float(call.dtype), call.origin, ": no convolution of ", name_of(call.dtype));
  const ElementCounts counts = element_counts(call);
  if (counts.input == 0 || counts.weight == 0 || counts.output == 0) {
    const auto element = static_cast<std::int64_t>(size_of(call.dtype));
    switch (call.kind) {
      case ConvolutionKind::forward: return std::make_unique<ZeroFill>(operands.output, counts.output * element);
      case ConvolutionKind::input_gradient: return std::make_unique<ZeroFill>(operands.input, counts.input * element);
      case ConvolutionKind::weight_gradient: return std::make_unique<ZeroFill>(operands.weight, counts.weight * element);
    }
  }
  if (call.dtype == DType::f16 || call.dtype == DType::bf16) {
    if (call.dtype == DType::bf16 && is_fastest_as_product(call)) return make_convolution_product(call, operands);
    return std::make_unique<ConvertedConvolution>(call, operands);
  }
  if (operands.backend.winograd && takes_winograd(call)) return make_winograd_convolution(call, operands);
  if (takes_depthwise(call)) return make_depthwise_convolution(call, operands);
  if (takes_blocked(call)) {
    if (is_fastest_as_product(call)) return make_convolution_product(call, operands);
    return make_blocked_convolution(call, operands);
  }
  return make_unfolded_convolution(call, operands);
}

}  // namespace gcomp::runtime::cpu
