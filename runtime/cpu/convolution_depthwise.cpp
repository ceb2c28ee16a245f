#include "runtime/cpu/convolution_depthwise.h"

#include <algorithm>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_areas.h"
#include "runtime/cpu/convolution_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

// What an area reads of either activation, about: it stays in the second cache.
constexpr std::int64_t kAreaElements = 1 << 15, kFewestPositions = 16, kMostPositions = 512;
// Sums of a weight gradient, each of which takes some areas; together they have so many elements at most.
constexpr std::int64_t kMostPartsOfChannels = 32, kMostPartElements = std::int64_t{1} << 20;
constexpr std::int64_t kTransposedChannels = 64;  // of the weights, by a task

/// The areas, and a thread's lists of what one of them reads.
class DepthwiseCall : public LibraryCall {
 public:
  void bind(const Workspace& workspace, int) override { workspace_ = workspace; }

 protected:
  DepthwiseCall(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : functions_(operands.backend.convolution->depthwise),
        shape_(shape_of(call)),
        areas_(shape_, call.kind, ConvolutionAreas::Taps::places),
        channels_(shape_.groups),
        taps_(shape_.taps()),
        all_areas_(areas_.cut(most_positions())) {}

  std::int64_t most_positions() const { return std::clamp(kAreaElements / channels_, kFewestPositions, kMostPositions); }
  std::int64_t lists_bytes() const { return areas_.lists_bytes(most_positions()); }

  /// All of a block but the weights, with its lists in the thread's scratch memory. Taps are numbered by their places in the
  /// kernel.
  DepthwiseBlock block_of(const ConvolutionArea& area, int thread) const {
    const ConvolutionAreas::Lists lists = areas_.find(area, most_positions(), workspace_.of_thread(thread));
    DepthwiseBlock block{.positions = area.positions,
                         .taps = areas_.taps_of(area),
                         .channels = channels_,
                         .sources = lists.sources,
                         .targets = lists.targets,
                         .tap_offsets = lists.tap_offsets,
                         .tap_numbers = lists.tap_numbers,
                         .weight_stride = channels_};
    const std::vector<Tap>& taps = areas_.grids()[areas_.grid_of(area)].taps;
    for (std::int64_t t = 0; t < block.taps; ++t)
      lists.tap_numbers[t] = taps[static_cast<std::size_t>(lists.tap_numbers[t])].weight;
    return block;
  }

  const DepthwiseFunctions functions_;
  const ConvolutionShape shape_;
  const ConvolutionAreas areas_;
  const std::int64_t channels_, taps_;
  const std::vector<ConvolutionArea> all_areas_;
  Workspace workspace_;
};

/// Forward, and the gradient of the input.
class DepthwiseConvolution final : public DepthwiseCall {
 public:
  DepthwiseConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands) : DepthwiseCall(call, operands) {
    const bool forward = call.kind == ConvolutionKind::forward;
    input_ = reinterpret_cast<const float*>(forward ? operands.input : operands.output);
    target_ = reinterpret_cast<float*>(forward ? operands.output : operands.input);
    weight_ = reinterpret_cast<const float*>(operands.weight);
  }

  WorkspaceSize workspace() const override {
    return {aligned_size(taps_ * channels_ * static_cast<std::int64_t>(sizeof(float))), lists_bytes()};
  }

  void run(ThreadPool& pool) override {
    auto* const weights = reinterpret_cast<float*>(workspace_.shared);
    pool.run(quotient_up(channels_, kTransposedChannels), [&](std::int64_t first, std::int64_t last, int) {
      const std::int64_t end = std::min(last * kTransposedChannels, channels_);
      for (std::int64_t t = 0; t < taps_; ++t)
        for (std::int64_t c = first * kTransposedChannels; c < end; ++c) weights[t * channels_ + c] = weight_[c * taps_ + t];
    });
    pool.run(static_cast<std::int64_t>(all_areas_.size()), [&](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) {
        DepthwiseBlock block = block_of(all_areas_[static_cast<std::size_t>(i)], thread);
        block.input = input_;
        block.weights = weights;
        block.target = target_;
        functions_.convolve(block);
      }
    });
  }

 private:
  const float *input_, *weight_;
  float* target_;
};

class DepthwiseWeightGradient final : public DepthwiseCall {
 public:
  DepthwiseWeightGradient(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : DepthwiseCall(call, operands),
        input_(reinterpret_cast<const float*>(operands.input)),
        gradient_(reinterpret_cast<float*>(operands.output)),
        weight_(reinterpret_cast<float*>(operands.weight)),
        areas_in_all_(static_cast<std::int64_t>(all_areas_.size())),
        parts_(
            std::clamp<std::int64_t>(std::min(kMostPartsOfChannels, kMostPartElements / (taps_ * channels_)), 1, areas_in_all_)) {}

  WorkspaceSize workspace() const override { return {parts_ * part_bytes(), lists_bytes()}; }

  void run(ThreadPool& pool) override {
    pool.run(parts_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t part = first; part < last; ++part) sum_part(part, thread);
    });
    pool.run(quotient_up(channels_, kTransposedChannels), [this](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) write_weights(i * kTransposedChannels);
    });
  }

 private:
  std::int64_t part_bytes() const { return aligned_size(taps_ * channels_ * static_cast<std::int64_t>(sizeof(float))); }
  float* sums_of(std::int64_t part) const { return reinterpret_cast<float*>(workspace_.shared + part * part_bytes()); }

  void sum_part(std::int64_t part, int thread) const {
    std::fill_n(sums_of(part), taps_ * channels_, 0.0f);
    for (std::int64_t i = areas_in_all_ * part / parts_; i < areas_in_all_ * (part + 1) / parts_; ++i) {
      DepthwiseBlock block = block_of(all_areas_[static_cast<std::size_t>(i)], thread);
      block.input = input_;
      block.weights = sums_of(part);
      block.target = gradient_;
      functions_.add_weight_gradient(block);
    }
  }

  /// Of some channels: parts are added in order.
  void write_weights(std::int64_t first) const {
    const std::int64_t channels = std::min(kTransposedChannels, channels_ - first);
    for (std::int64_t t = 0; t < taps_; ++t) {
      float sums[kTransposedChannels];
      std::copy_n(sums_of(0) + t * channels_ + first, channels, sums);
      for (std::int64_t part = 1; part < parts_; ++part) {
        const float* more = sums_of(part) + t * channels_ + first;
        for (std::int64_t c = 0; c < channels; ++c) sums[c] += more[c];
      }
      for (std::int64_t c = 0; c < channels; ++c) weight_[(first + c) * taps_ + t] = sums[c];
    }
  }

  const float* input_;
  float *gradient_, *weight_;
  std::int64_t areas_in_all_, parts_;
};

}  // namespace

bool takes_depthwise(const ConvolutionCall& call) {
  return call.dtype == DType::f32 && call.channels_last && call.groups > 1 && call.groups == call.input_channels &&
         call.groups == call.output_channels;
}

std::unique_ptr<LibraryCall> make_depthwise_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return std::make_unique<DepthwiseWeightGradient>(call, operands);
  return std::make_unique<DepthwiseConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
