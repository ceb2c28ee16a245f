#include "runtime/cpu/convolution_winograd.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_shape.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kFloat = sizeof(float), kRows = kWinogradRows, kTile = kWinogradTile;
constexpr std::int64_t kFewestChannels = 32, kFewestTiles = 48, kWeightsOfTile = 1600;
// Between transformed rows, so that the same places of all of them do not share a cache set.
constexpr std::int64_t kApart = 16;

using Triple = ConvolutionShape::Triple;

/// Tiles of 2 x 2 positions of one activation, each of which reads 4 x 4 positions of another one, from `pad` before its own on.
class Tiles {
 public:
  Tiles(std::int64_t batch, const Triple& results, const Triple& sources, const Triple& pad)
      : results_(results),
        sources_(sources),
        pad_(pad),
        down_(quotient_up(results[1], kTile)),
        across_(quotient_up(results[2], kTile)) {
    count_ = batch * down_ * across_;
  }

  std::int64_t count() const { return count_; }

  /// visit(tile, image, first line, first column) of [first, last).
  template <class Visit>
  void visit(std::int64_t first, std::int64_t last, Visit visit) const {
    for (std::int64_t tile = first; tile < last; ++tile) {
      const std::int64_t line = tile / across_;
      visit(tile, line / down_, line % down_ * kTile, tile % across_ * kTile);
    }
  }

  /// Of the 4 x 4 positions that a tile reads, where their channels begin; `nothing` where there is padding.
  std::array<const void*, 16> sources(const float* from, std::int64_t channels, std::int64_t image, std::int64_t line,
                                      std::int64_t column, const float* nothing) const {
    return positions<4, const void*>(from, sources_, channels, image, line - pad_[1], column - pad_[2], nothing);
  }
  /// Of its own 2 x 2 positions; `nothing` beyond the last.
  template <class Pointer, class T>
  std::array<Pointer, 4> results(T* to, std::int64_t channels, std::int64_t image, std::int64_t line, std::int64_t column,
                                 T* nothing) const {
    return positions<2, Pointer>(to, results_, channels, image, line, column, nothing);
  }

 private:
  template <int Side, class Pointer, class T>
  static std::array<Pointer, Side * Side> positions(T* data, const Triple& extent, std::int64_t channels, std::int64_t image,
                                                    std::int64_t line, std::int64_t column, T* nothing) {
    std::array<Pointer, Side * Side> found;
    for (std::int64_t i = 0; i < Side; ++i)
      for (std::int64_t j = 0; j < Side; ++j) {
        const std::int64_t y = line + i, x = column + j;
        const bool inside = y >= 0 && y < extent[1] && x >= 0 && x < extent[2];
        found[static_cast<std::size_t>(i * Side + j)] =
            inside ? data + ((image * extent[1] + y) * extent[2] + x) * channels : nothing;
      }
    return found;
  }

  Triple results_, sources_, pad_;
  std::int64_t down_, across_, count_;
};

/// The convolution and the gradient of its input. A task transforms some tiles, multiplies each row by that of the weights, and
/// transforms the products back; what it holds meanwhile stays in its thread's caches.
class WinogradConvolution final : public LibraryCall {
 public:
  WinogradConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : gemm_(operands.backend.gemm->f32),
        winograd_(operands.backend.convolution->winograd),
        tiles_(tiles_of(call)),
        weight_(reinterpret_cast<const float*>(operands.weight)) {
    const bool forward = call.kind == ConvolutionKind::forward;
    source_ = reinterpret_cast<const float*>(forward ? operands.input : operands.output);
    target_ = reinterpret_cast<float*>(forward ? operands.output : operands.input);
    channels_ = forward ? call.input_channels : call.output_channels;
    results_ = forward ? call.output_channels : call.input_channels;
    // [output][input][3][3]; the gradient of the input has the inputs as results, and turned taps.
    const std::int64_t inputs = call.input_channels * kWinogradTaps;
    channel_step_ = forward ? kWinogradTaps : inputs;
    weights_ = {nullptr, forward ? inputs : kWinogradTaps, 0, !forward};
    nothing_.resize(static_cast<std::size_t>(channels_));
    most_ = std::clamp(kTaskBytes / (kRows * kFloat * (channels_ + results_)) / kWhole * kWhole, kFewestOfTask, kMostOfTask);
  }

  WorkspaceSize workspace() const override {
    return {kRows * packed_bytes(), transformed_bytes(channels_) + transformed_bytes(results_) + gemm_scratch_bytes()};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    // It changes no bits.
    tasks_ = std::max<std::int64_t>(1, quotient_up(tiles_.count(), most_));
    if (tasks_ < kTasksOfThread * threads) tasks_ = std::min(tiles_.count(), quotient_up(tasks_, threads) * threads);
  }

  void run(ThreadPool& pool) override {
    const std::int64_t panels = quotient_up(results_, gemm_.width), blocks = quotient_up(channels_, kGemmDepth);
    pool.run(panels * blocks, [this, panels](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) transform_weights(first % panels * gemm_.width, first / panels * kGemmDepth);
    });
    pool.run(tasks_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (; first < last; ++first) run_task(tiles_.count() * first / tasks_, tiles_.count() * (first + 1) / tasks_, thread);
    });
  }

 private:
  static constexpr std::int64_t kTaskBytes = 1 << 20;  // of a task's transformed tiles, about
  static constexpr std::int64_t kWhole = 24, kFewestOfTask = 48, kMostOfTask = 240;
  static constexpr std::int64_t kTasksOfThread = 4;

  static Tiles tiles_of(const ConvolutionCall& call) {
    const ConvolutionShape shape = shape_of(call);
    if (call.kind != ConvolutionKind::input_gradient) return {shape.batch, shape.output, shape.input, shape.pad};
    return {shape.batch, shape.input, shape.output, {0, 2 - shape.pad[1], 2 - shape.pad[2]}};
  }

  std::int64_t packed_bytes() const { return aligned_size(gemm_packed_b_bytes(results_, channels_, kFloat)); }
  std::int64_t step_of(std::int64_t channels) const { return most_ * channels + kApart; }
  std::int64_t transformed_bytes(std::int64_t channels) const { return aligned_size(kRows * step_of(channels) * kFloat); }

  /// `count` tiles of a row times its weights.
  GemmBlock product(std::int64_t row, std::int64_t count, float* sources, float* products, std::byte* scratch) const {
    return {count,
            results_,
            channels_,
            {sources, channels_, 1},
            {},
            {products, results_, 1},
            scratch,
            nullptr,
            workspace_.shared + row * packed_bytes()};
  }

  /// A panel of each row's weights, from a result on, for a block of channels: as GemmFunction::pack_b leaves them.
  void transform_weights(std::int64_t result, std::int64_t channel) const {
    const std::int64_t width = gemm_.width, depth = std::min(kGemmDepth, channels_ - channel);
    WinogradWeights weights = weights_;
    weights.count = std::min(width, results_ - result);
    auto* to = reinterpret_cast<float*>(workspace_.shared) + channel * round_up(results_, width) + result * depth;
    for (std::int64_t c = 0; c < depth; ++c) {
      weights.from = weight_ + result * weights.step + (channel + c) * channel_step_;
      winograd_.transform_weights(weights, width, to + c * width, packed_bytes() / kFloat);
    }
  }

  void run_task(std::int64_t begin, std::int64_t end, int thread) const {
    std::byte* scratch = workspace_.of_thread(thread);
    auto* sources = reinterpret_cast<float*>(scratch);
    auto* products = reinterpret_cast<float*>(scratch + transformed_bytes(channels_));
    scratch += transformed_bytes(channels_) + transformed_bytes(results_);
    tiles_.visit(begin, end, [&](std::int64_t tile, std::int64_t image, std::int64_t line, std::int64_t column) {
      const auto positions = tiles_.sources(source_, channels_, image, line, column, nothing_.data());
      winograd_.transform_source(positions.data(), channels_, sources + (tile - begin) * channels_, step_of(channels_));
    });
    for (std::int64_t row = 0; row < kRows; ++row)
      gemm_.multiply(product(row, end - begin, sources + row * step_of(channels_), products + row * step_of(results_), scratch));
    tiles_.visit(begin, end, [&](std::int64_t tile, std::int64_t image, std::int64_t line, std::int64_t column) {
      const auto positions = tiles_.results<void*, float>(target_, results_, image, line, column, nullptr);
      winograd_.write_results(products + (tile - begin) * results_, step_of(results_), results_, positions.data());
    });
  }

  GemmFunction gemm_;
  WinogradFunctions winograd_;
  Tiles tiles_;
  const float *weight_, *source_ = nullptr;
  float* target_ = nullptr;
  std::int64_t channels_ = 0, results_ = 0, most_ = 0, tasks_ = 1;
  WinogradWeights weights_;  // of the first channel
  std::int64_t channel_step_ = 0;
  std::vector<float> nothing_;  // zeros
  Workspace workspace_;
};

/// The gradient of the weights: of each transformed row, sources times gradients summed over all tiles, chunk after chunk.
class WinogradWeightGradient final : public LibraryCall {
 public:
  WinogradWeightGradient(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : gemm_(operands.backend.gemm->f32),
        winograd_(operands.backend.convolution->winograd),
        tiles_(call.batch, shape_of(call).output, shape_of(call).input, shape_of(call).pad),
        source_(reinterpret_cast<const float*>(operands.input)),
        gradient_(reinterpret_cast<const float*>(operands.output)),
        weight_(reinterpret_cast<float*>(operands.weight)),
        channels_(call.input_channels),
        results_(call.output_channels),
        nothing_(static_cast<std::size_t>(std::max(channels_, results_))) {
    const std::int64_t most = kChunkBytes / (kRows * kFloat * (channels_ + results_)) / kGemmDepth * kGemmDepth;
    chunk_ = std::min(tiles_.count(), std::max(most, kGemmDepth));
  }

  WorkspaceSize workspace() const override {
    return {transformed_bytes(channels_) + transformed_bytes(results_) + kRows * sum_bytes(), gemm_scratch_bytes()};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    parts_ = std::clamp<std::int64_t>(quotient_up(kTasksOfThread * threads, kRows), 1, quotient_up(channels_, kWhole));
  }

  void run(ThreadPool& pool) override {
    for (std::int64_t begin = 0; begin < tiles_.count(); begin += chunk_) {
      const std::int64_t end = std::min(tiles_.count(), begin + chunk_);
      pool.run(quotient_up(end - begin, kTilesTogether), [&](std::int64_t first, std::int64_t last, int) {
        transform(begin, begin + first * kTilesTogether, std::min(end, begin + last * kTilesTogether));
      });
      pool.run(kRows * parts_, [&](std::int64_t first, std::int64_t last, int thread) {
        for (; first < last; ++first) multiply(first / parts_, first % parts_, end - begin, begin > 0, thread);
      });
    }
    pool.run(quotient_up(results_, kResultsTogether), [this](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) write_weights(first * kResultsTogether);
    });
  }

 private:
  static constexpr std::int64_t kChunkBytes = 4 << 20;  // of a chunk's transformed tiles, about: they stay in the last cache
  static constexpr std::int64_t kTilesTogether = 16, kResultsTogether = 16, kTasksOfThread = 4;
  static constexpr std::int64_t kWhole = 12;  // channels of a product's tile

  std::int64_t step_of(std::int64_t channels) const { return chunk_ * channels + kApart; }
  std::int64_t transformed_bytes(std::int64_t channels) const { return aligned_size(kRows * step_of(channels) * kFloat); }
  std::int64_t sum_bytes() const { return aligned_size(channels_ * results_ * kFloat); }
  float* sources() const { return reinterpret_cast<float*>(workspace_.shared); }
  float* gradients() const { return reinterpret_cast<float*>(workspace_.shared + transformed_bytes(channels_)); }
  float* sum_of(std::int64_t row) const {
    return reinterpret_cast<float*>(workspace_.shared + transformed_bytes(channels_) + transformed_bytes(results_) +
                                    row * sum_bytes());
  }

  /// Tiles [first, last) of a chunk.
  void transform(std::int64_t chunk, std::int64_t first, std::int64_t last) const {
    tiles_.visit(first, last, [&](std::int64_t tile, std::int64_t image, std::int64_t line, std::int64_t column) {
      const auto read = tiles_.sources(source_, channels_, image, line, column, nothing_.data());
      winograd_.transform_source(read.data(), channels_, sources() + (tile - chunk) * channels_, step_of(channels_));
      const auto own = tiles_.results<const void*, const float>(gradient_, results_, image, line, column, nothing_.data());
      winograd_.transform_gradient(own.data(), results_, gradients() + (tile - chunk) * results_, step_of(results_));
    });
  }

  void multiply(std::int64_t row, std::int64_t part, std::int64_t count, bool add, int thread) const {
    const std::int64_t whole = quotient_up(channels_, kWhole), first = std::min(channels_, whole * part / parts_ * kWhole),
                       last = std::min(channels_, whole * (part + 1) / parts_ * kWhole);
    GemmBlock block{last - first,
                    results_,
                    count,
                    {sources() + row * step_of(channels_) + first, 1, channels_},
                    {gradients() + row * step_of(results_), results_, 1},
                    {sum_of(row) + first * results_, results_, 1},
                    workspace_.of_thread(thread)};
    block.add = add;
    gemm_.multiply(block);
  }

  void write_weights(std::int64_t first) const {
    const std::int64_t count = std::min(kResultsTogether, results_ - first), step = channels_ * kWinogradTaps;
    for (std::int64_t c = 0; c < channels_; ++c)
      winograd_.write_weights(sum_of(0) + c * results_ + first, sum_bytes() / kFloat, count,
                              weight_ + first * step + c * kWinogradTaps, step);
  }

  GemmFunction gemm_;
  WinogradFunctions winograd_;
  Tiles tiles_;
  const float *source_, *gradient_;
  float* weight_;
  std::int64_t channels_, results_, chunk_ = 0, parts_ = 1;
  std::vector<float> nothing_;  // zeros
  Workspace workspace_;
};

}  // namespace

bool takes_winograd(const ConvolutionCall& call) {
  const auto all = [](const std::vector<std::int64_t>& extents, std::int64_t value) {
    return std::ranges::all_of(extents, [value](std::int64_t extent) { return extent == value; });
  };
  const auto within = [](const std::vector<std::int64_t>& pads) {
    return std::ranges::all_of(pads, [](std::int64_t pad) { return pad >= 0 && pad <= 2; });
  };
  const bool is_such = takes_blocked(call) && call.groups == 1 && call.kernel.size() == 2 && all(call.kernel, 3) &&
                       all(call.strides, 1) && all(call.dilations, 1) && within(call.pads_begin) && within(call.pads_end);
  if (!is_such || std::min(call.input_channels, call.output_channels) < kFewestChannels) return false;
  // Few tiles do not pay for the transforms of the weights or, of their gradient, for 16 sums where nine are wanted.
  const std::vector<std::int64_t>& results =
      call.kind == ConvolutionKind::input_gradient ? call.input_spatial : call.output_spatial;
  const std::int64_t tiles = call.batch * quotient_up(results[0], kTile) * quotient_up(results[1], kTile);
  if (tiles < kFewestTiles) return false;
  return call.kind != ConvolutionKind::weight_gradient || tiles * kWeightsOfTile >= call.input_channels * call.output_channels;
}

std::unique_ptr<LibraryCall> make_winograd_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return std::make_unique<WinogradWeightGradient>(call, operands);
  return std::make_unique<WinogradConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
