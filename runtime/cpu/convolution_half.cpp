#include "runtime/cpu/convolution_half.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_amx.h"
#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_product.h"
#include "runtime/cpu/convolution_shape.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kTaskElements = 8192, kPair = 2, kElement = sizeof(float);

/// convert(first element, how many) in portions of an even number.
template <class Convert>
void for_elements(ThreadPool& pool, std::int64_t count, Convert convert) {
  pool.run(quotient_up(count, kTaskElements), [&](std::int64_t first, std::int64_t last, int) {
    convert(first * kTaskElements, std::min(last * kTaskElements, count) - first * kTaskElements);
  });
}

/// f16 and bf16: both operands widened to f32 in scratch, convolved there, the result rounded once.
class ConvertedConvolution final : public LibraryCall {
 public:
  ConvertedConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : dtype_(call.dtype), wide_call_(call), backend_(operands.backend) {
    wide_call_.dtype = DType::f32;
    const ConvolutionElements counts = elements_of(call);
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

  void widen(ThreadPool& pool, const Narrow& tensor) const {
    const auto convert = dtype_ == DType::f16 ? backend_.gemm->half.widen_f16 : backend_.gemm->half.widen_bf16;
    for_elements(pool, tensor.count, [&](std::int64_t at, std::int64_t count) {
      convert(tensor.data + at, reinterpret_cast<float*>(wide_ + tensor.offset) + at, count);
    });
  }

  void narrow(ThreadPool& pool, const Narrow& tensor) const {
    const auto convert = dtype_ == DType::f16 ? backend_.gemm->half.narrow_f16 : backend_.gemm->half.narrow_bf16;
    for_elements(pool, tensor.count, [&](std::int64_t at, std::int64_t count) {
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

/// Forward and the gradient of the input, bf16: what GemmFunctions::bf16 says of a product's sums holds of the channels of each
/// tap. Where the processor multiplies pairs, two neighbouring channels of the source are one of a convolution of f32, with weights
/// to match; elsewhere source and weights are widened to f32, the two of each pair in the other order.
class PairConvolution final : public LibraryCall {
 public:
  PairConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : call_(call),
        half_(operands.backend.gemm->half),
        backend_(operands.backend),
        forward_(call.kind == ConvolutionKind::forward),
        pairs_(backend_.bf16_convolution->elements == kPair),
        taps_(shape_of(call).taps()) {
    backend_.convolution = backend_.bf16_convolution;
    const ConvolutionElements counts = elements_of(call);
    sources_ = forward_ ? counts.input : counts.output;
    results_ = forward_ ? counts.output : counts.input;
    source_ = reinterpret_cast<std::uint16_t*>(forward_ ? operands.input : operands.output);
    weight_ = reinterpret_cast<const std::uint16_t*>(operands.weight);
    result_ = reinterpret_cast<std::uint16_t*>(forward_ ? operands.output : operands.input);
    source_bytes_ = pairs_ ? 0 : aligned_size(sources_ * kElement);
    weight_bytes_ = aligned_size(counts.weight / (pairs_ ? kPair : 1) * kElement);
    result_bytes_ = aligned_size(results_ * kElement);
    call_.dtype = DType::f32;
    if (pairs_) (forward_ ? call_.input_channels : call_.output_channels) /= kPair;
  }

  WorkspaceSize workspace() const override {
    WorkspaceSize size = make_inner(nullptr)->workspace();
    size.shared += source_bytes_ + weight_bytes_ + result_bytes_;
    return size;
  }

  void bind(const Workspace& workspace, int threads) override {
    copies_ = workspace.shared;
    inner_ = make_inner(copies_);
    Workspace rest = workspace;
    rest.shared += source_bytes_ + weight_bytes_ + result_bytes_;
    inner_->bind(rest, threads);
  }

  void run(ThreadPool& pool) override {
    if (!pairs_)
      for_elements(pool, sources_,
                   [&](std::int64_t at, std::int64_t count) { half_.widen_swapped_bf16(source_ + at, floats(0) + at, count); });
    if (forward_)
      pool.run(call_.output_channels, [this](std::int64_t first, std::int64_t last, int) {
        for (; first < last; ++first) convert_result(first);
      });
    else
      pool.run(output_pairs(), [this](std::int64_t first, std::int64_t last, int) {
        for (; first < last; ++first) convert_channels(first);
      });
    inner_->run(pool);
    for_elements(pool, results_, [&](std::int64_t at, std::int64_t count) {
      half_.narrow_bf16(floats(source_bytes_ + weight_bytes_) + at, result_ + at, count);
    });
  }

 private:
  float* floats(std::int64_t bytes) const { return reinterpret_cast<float*>(copies_ + bytes); }
  std::int64_t output_pairs() const { return call_.output_channels / (pairs_ ? 1 : kPair); }

  std::unique_ptr<LibraryCall> make_inner(std::byte* copies) const {
    std::byte* const source = pairs_ ? reinterpret_cast<std::byte*>(source_) : copies;
    std::byte* const result = copies + source_bytes_ + weight_bytes_;
    return make_blocked_convolution(call_,
                                    {forward_ ? source : result, copies + source_bytes_, forward_ ? result : source, backend_});
  }

  /// Weights [output][input][place] of an output, whose input channels are summed.
  void convert_result(std::int64_t output) const {
    const std::int64_t channel_pairs = call_.input_channels / (pairs_ ? 1 : kPair), line = channel_pairs * kPair * taps_;
    const std::uint16_t* from = weight_ + output * line;
    auto* to = reinterpret_cast<std::uint32_t*>(floats(source_bytes_)) + output * (pairs_ ? line / kPair : line);
    for (std::int64_t pair = 0; pair < channel_pairs; ++pair, from += kPair * taps_) {
      for (std::int64_t tap = 0; tap < taps_; ++tap) {
        const std::uint32_t first = from[tap], second = from[taps_ + tap];
        if (pairs_) to[tap] = first | second << 16;
        else to[tap] = second << 16, to[taps_ + tap] = first << 16;
      }
      to += pairs_ ? taps_ : kPair * taps_;
    }
  }

  /// Weights of two outputs, which are summed.
  void convert_channels(std::int64_t pair) const {
    const std::int64_t line = call_.input_channels * taps_;
    const std::uint16_t* const from = weight_ + pair * kPair * line;
    if (pairs_) {
      half_.interleave(from, from + line, reinterpret_cast<std::uint32_t*>(floats(source_bytes_)) + pair * line, line);
    } else {
      float* const to = floats(source_bytes_) + pair * kPair * line;
      half_.widen_bf16(from + line, to, line);
      half_.widen_bf16(from, to + line, line);
    }
  }

  ConvolutionCall call_;  // as the kernels of f32 see it
  const HalfLines& half_;
  CallBackend backend_;
  bool forward_, pairs_;
  std::int64_t taps_, sources_ = 0, results_ = 0;  // elements of the two activations
  std::uint16_t *source_, *result_;
  const std::uint16_t* weight_;
  std::int64_t source_bytes_ = 0, weight_bytes_ = 0, result_bytes_ = 0;
  std::byte* copies_ = nullptr;
  std::unique_ptr<LibraryCall> inner_;
};

/// The gradient of the weight, bf16, summed over pairs of positions: activations are read where they lie, or widened to f32.
class PairWeightGradient final : public LibraryCall {
 public:
  PairWeightGradient(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : call_(call), operands_(operands), counts_(elements_of(call)), pairs_(operands.backend.bf16_convolution->elements == kPair) {
    call_.dtype = DType::f32;
    operands_.backend.convolution = operands_.backend.bf16_convolution;
    if (!pairs_) input_bytes_ = aligned_size(counts_.input * kElement), output_bytes_ = aligned_size(counts_.output * kElement);
  }

  WorkspaceSize workspace() const override {
    WorkspaceSize size = make_inner(nullptr)->workspace();
    size.shared += input_bytes_ + output_bytes_ + aligned_size(counts_.weight * kElement);
    return size;
  }

  void bind(const Workspace& workspace, int threads) override {
    copies_ = workspace.shared;
    inner_ = make_inner(copies_);
    Workspace rest = workspace;
    rest.shared += input_bytes_ + output_bytes_ + aligned_size(counts_.weight * kElement);
    inner_->bind(rest, threads);
  }

  void run(ThreadPool& pool) override {
    const HalfLines& half = operands_.backend.gemm->half;
    const auto widen = [&](const std::byte* from, std::int64_t count, std::int64_t bytes) {
      for_elements(pool, count, [&](std::int64_t at, std::int64_t some) {
        half.widen_bf16(reinterpret_cast<const std::uint16_t*>(from) + at, floats(bytes) + at, some);
      });
    };
    if (!pairs_) {
      widen(operands_.input, counts_.input, 0);
      widen(operands_.output, counts_.output, input_bytes_);
    }
    inner_->run(pool);
    for_elements(pool, counts_.weight, [&](std::int64_t at, std::int64_t some) {
      half.narrow_bf16(floats(input_bytes_ + output_bytes_) + at, reinterpret_cast<std::uint16_t*>(operands_.weight) + at, some);
    });
  }

 private:
  float* floats(std::int64_t bytes) const { return reinterpret_cast<float*>(copies_ + bytes); }

  std::unique_ptr<LibraryCall> make_inner(std::byte* copies) const {
    return make_blocked_convolution(call_, {pairs_ ? operands_.input : copies, copies + input_bytes_ + output_bytes_,
                                            pairs_ ? operands_.output : copies + input_bytes_, operands_.backend});
  }

  ConvolutionCall call_;
  ConvolutionOperands operands_;
  ConvolutionElements counts_;
  bool pairs_;
  std::int64_t input_bytes_ = 0, output_bytes_ = 0;  // of copies in f32
  std::byte* copies_ = nullptr;
  std::unique_ptr<LibraryCall> inner_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_half_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.dtype == DType::bf16 && is_matrix_product(call)) return make_convolution_product(call, operands);
  if (operands.backend.tiles && takes_tiles(call)) return make_tile_convolution(call, operands);
  if (call.dtype == DType::bf16 && sums_pairs(call)) {
    if (call.kind == ConvolutionKind::weight_gradient) return std::make_unique<PairWeightGradient>(call, operands);
    return std::make_unique<PairConvolution>(call, operands);
  }
  return std::make_unique<ConvertedConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
