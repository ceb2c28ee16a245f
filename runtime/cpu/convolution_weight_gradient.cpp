// Weight gradients of the blocked convolution. Positions are divided into parts by the shape alone, each with a sum of its own;
// the sums are added in order, and brought into the order of the weights.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_grid.h"
#include "runtime/cpu/convolution_panels.h"
#include "runtime/cpu/convolution_rows.h"
#include "runtime/cpu/convolution_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

// Of a block, about: what a tap reads of them stays in the first cache.
constexpr std::int64_t kBlockPositions = 256;
constexpr std::int64_t kMostBlockPositions = kBlockPositions + 16;
constexpr std::int64_t kMostParts = 8;
// The sum of a part costs, for each weight, as much time as this many multiplications.
constexpr std::int64_t kPartCost = 50;
constexpr std::int64_t kMostPartBytes = std::int64_t{16} << 20;  // of all parts' sums
constexpr std::int64_t kBlockCost = 6;
// Ranges of channels, for each thread, among which the best split is sought.
constexpr std::int64_t kMostRangesOfThread = 4;

class BlockedWeightGradient final : public LibraryCall {
 public:
  BlockedWeightGradient(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : functions_(*operands.backend.convolution),
        shape_(shape_of(call)),
        grid_(std::move(tap_grids(shape_, call.kind).front())),
        source_{shape_.input, shape_.group_inputs},
        input_(reinterpret_cast<const float*>(operands.input)),
        gradient_(reinterpret_cast<const float*>(operands.output)),
        weight_(reinterpret_cast<float*>(operands.weight)),
        positions_(shape_.batch * shape_.positions()),
        outputs_(shape_.group_outputs) {
    gathers_ = source_.channels < kFewChannels && grid_.taps.size() > 1;
    taps_ = gathers_ ? 1 : static_cast<std::int64_t>(grid_.taps.size());
    channels_ = gathers_ ? shape_.taps() * source_.channels : source_.channels;
    panels_ = (outputs_ + functions_.width - 1) / functions_.width;
    channel_tiles_ = (channels_ + functions_.rows - 1) / functions_.rows;
    tile_stride_ = panels_ * taps_ * functions_.rows * functions_.width;
    number_channels();
    divide_positions();
    measure_blocks();
  }

  WorkspaceSize workspace() const override {
    return {parts_ * part_bytes(),
            runs_bytes() + counts_bytes() + offsets_bytes() + packed_gradient_bytes() + packed_input_bytes() + rows_bytes()};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    ranges_ = fastest_ranges(threads);
  }

  void run(ThreadPool& pool) override {
    pool.run(parts_ * ranges_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) run_task(i % parts_, i / parts_, thread);
    });
    pool.run((source_.channels + kChannels - 1) / kChannels, [this](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) write_weights(i * kChannels, std::min(source_.channels, (i + 1) * kChannels));
    });
  }

 private:
  static constexpr std::int64_t kElement = sizeof(float);
  static constexpr std::int64_t kChannels = 16;  // that are written together

  /// Each part has a sum of its own, so that this decides the bits.
  void divide_positions() {
    const std::int64_t multiplications = shape_.multiplications(), weights = shape_.weights();
    // A few positions are no block of their own: each adds to all sums.
    constexpr std::int64_t kFew = kMostBlockPositions - kBlockPositions;
    blocks_ = std::max<std::int64_t>(1, (positions_ - kFew + kBlockPositions - 1) / kBlockPositions);
    parts_ = std::clamp<std::int64_t>(std::min(kMostParts, kMostPartBytes / (weights * kElement)), 1, blocks_);
    while (parts_ > 1 && parts_ * weights * kPartCost * 10 > multiplications) parts_ /= 2;
  }

  /// Tiles have about as many channels as each other: one of few waits for its multiplications.
  void number_channels() {
    for (std::int64_t tile = 0; tile < channel_tiles_; ++tile) {
      const Interval channels = part_of(channels_, tile, channel_tiles_);
      tile_channels_.push_back(channels.begin);
      for (std::int64_t c = channels.begin; c < channels.end; ++c)
        places_.push_back(tile * tile_stride_ + (c - channels.begin) * functions_.width);
    }
    tile_channels_.push_back(channels_);
  }

  /// Part `index` of `count` of `all`, as evenly as may be.
  struct Interval {
    std::int64_t begin = 0, end = 0;
  };
  static Interval part_of(std::int64_t all, std::int64_t index, std::int64_t count) {
    return {all * index / count, all * (index + 1) / count};
  }
  Interval positions_of_block(std::int64_t block) const { return part_of(positions_, block, blocks_); }

  /// Into how many ranges the channels are divided, so that the slowest thread's tasks, shared out as ThreadPool does it, take the
  /// least time. It changes no bits.
  std::int64_t fastest_ranges(int threads) const {
    std::int64_t best = 1;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t ranges = 1; ranges <= std::min(channel_tiles_, kMostRangesOfThread * threads); ++ranges) {
      double slowest = 0;
      for (int thread = 0; thread < threads; ++thread) {
        const Interval tasks = part_of(parts_ * ranges, thread, threads);
        double time = 0;
        for (std::int64_t i = tasks.begin; i < tasks.end; ++i)
          time += time_of(i % parts_, part_of(channel_tiles_, i / parts_, ranges));
        slowest = std::max(slowest, time);
      }
      if (slowest < least) least = slowest, best = ranges;
    }
    return best;
  }

  /// Of a task, in what a tile of channels takes for a tap of a block; what a block costs whatever its channels takes as much as
  /// kBlockCost of these: the copy of the gradient, and the list of what is read.
  double time_of(std::int64_t part, const Interval& tiles) const {
    const Interval blocks = part_of(blocks_, part, parts_);
    return static_cast<double>(blocks.end - blocks.begin) * (static_cast<double>((tiles.end - tiles.begin) * taps_ + kBlockCost));
  }

  /// How far apart the rows are that a block reads, at most.
  void measure_blocks() {
    if (gathers_) return;
    for (std::int64_t i = 0; i < blocks_; ++i) {
      const Interval block = positions_of_block(i);
      const Interval span = span_of(block.begin, block.end - block.begin);
      most_span_ = std::max(most_span_, span.end - span.begin);
    }
  }

  /// Positions of the input from the first to behind the last that a block reads.
  Interval span_of(std::int64_t first, std::int64_t positions) const {
    Interval span{std::numeric_limits<std::int64_t>::max(), 0};
    walk_positions(grid_.count, first, positions, [&](const PositionRun& run) {
      for (const Tap& tap : grid_.taps) {
        const TapReads reads = reads_of(grid_, tap, source_, run);
        if (reads.count == 0) continue;
        span.begin = std::min(span.begin, reads.position);
        span.end = std::max(span.end, reads.position + (reads.count - 1) * grid_.scale[2] + 1);
      }
    });
    return span.end == 0 ? Interval{} : span;
  }

  std::int64_t part_bytes() const { return aligned_size(channel_tiles_ * tile_stride_ * kElement); }
  std::int64_t most_rows() const { return taps_ == 1 ? kMostBlockPositions : most_span_; }
  std::int64_t runs_bytes() const { return aligned_size(taps_ * kMostBlockPositions * static_cast<std::int64_t>(sizeof(TapRun))); }
  std::int64_t counts_bytes() const { return aligned_size(taps_ * 8); }
  std::int64_t offsets_bytes() const { return aligned_size(most_rows() * 8); }
  std::int64_t packed_gradient_bytes() const { return aligned_size(panels_ * kMostBlockPositions * functions_.width * kElement); }
  std::int64_t packed_input_bytes() const { return aligned_size(most_rows() * functions_.rows * kElement); }
  std::int64_t rows_bytes() const { return gathers_ ? aligned_size(kMostBlockPositions * channels_ * kElement) : 0; }
  float* sums_of(std::int64_t part) const { return reinterpret_cast<float*>(workspace_.shared + part * part_bytes()); }

  /// A thread's scratch memory.
  struct Scratch {
    TapRun* runs;
    std::int64_t *counts, *offsets;
    float *packed_gradient, *packed_input, *rows;
  };
  Scratch scratch_of(int thread) const {
    std::byte* at = workspace_.of_thread(thread);
    const auto take = [&](std::int64_t bytes) { return std::exchange(at, at + bytes); };
    Scratch scratch{};
    scratch.runs = reinterpret_cast<TapRun*>(take(runs_bytes()));
    scratch.counts = reinterpret_cast<std::int64_t*>(take(counts_bytes()));
    scratch.offsets = reinterpret_cast<std::int64_t*>(take(offsets_bytes()));
    scratch.packed_gradient = reinterpret_cast<float*>(take(packed_gradient_bytes()));
    scratch.packed_input = reinterpret_cast<float*>(take(packed_input_bytes()));
    scratch.rows = reinterpret_cast<float*>(at);
    return scratch;
  }

  void run_task(std::int64_t part, std::int64_t range, int thread) const {
    const Scratch scratch = scratch_of(thread);
    const Interval tiles = part_of(channel_tiles_, range, ranges_), blocks = part_of(blocks_, part, parts_);
    WeightGradientBlock block{.taps = taps_,
                              .tiles = tiles.end - tiles.begin,
                              .outputs = outputs_,
                              .tile_channels = tile_channels_.data() + tiles.begin,
                              .row_offsets = scratch.offsets,
                              .runs = scratch.runs,
                              .run_counts = scratch.counts,
                              .input_step = input_step(),
                              .input = gathers_ ? scratch.rows : input_,
                              .gradient_stride = outputs_,
                              .sums = sums_of(part) + tiles.begin * tile_stride_,
                              .sums_stride = tile_stride_,
                              .packed_gradient = scratch.packed_gradient,
                              .packed_input = scratch.packed_input};
    for (std::int64_t i = blocks.begin; i < blocks.end; ++i) {
      const auto [first, end] = positions_of_block(i);
      block.positions = end - first;
      block.rows_read = gathers_ ? gather(first, block.positions, scratch) : find_read(first, block.positions, scratch);
      block.gradient = gradient_ + first * outputs_;
      block.add = i > blocks.begin;
      functions_.add_weight_gradient(block);
    }
  }

  std::int64_t gather(std::int64_t first, std::int64_t positions, const Scratch& scratch) const {
    gather_rows(grid_, shape_, source_, input_, first, positions, scratch.rows);
    for (std::int64_t p = 0; p < positions; ++p) scratch.offsets[p] = p * channels_;
    scratch.runs[0] = {0, 0, static_cast<std::int32_t>(positions)};
    scratch.counts[0] = 1;
    return positions;
  }

  /// Positions more that a tap reads: rows of the packed input from `row` on, for those of the gradient from `position` on.
  void add_to_runs(std::int64_t row, std::int64_t position, std::int64_t count, TapRun* runs, std::int64_t& runs_so_far) const {
    const auto input = static_cast<std::int32_t>(row * functions_.rows),
               gradient = static_cast<std::int32_t>(position * functions_.width);
    if (runs_so_far > 0) {
      TapRun& last = runs[runs_so_far - 1];
      if (input == last.input + last.count * input_step() && gradient == last.gradient + last.count * functions_.width) {
        last.count += static_cast<std::int32_t>(count);
        return;
      }
    }
    runs[runs_so_far++] = {input, gradient, static_cast<std::int32_t>(count)};
  }

  /// Numbers the rows of the input that a block packs, and says which of them each tap reads; the result is how many. Several taps
  /// read nearly all that lies between the first and the last.
  std::int64_t find_read(std::int64_t first, std::int64_t positions, const Scratch& scratch) const {
    std::fill_n(scratch.counts, taps_, 0);
    Interval span;
    if (taps_ > 1) {
      span = span_of(first, positions);
      for (std::int64_t row = span.begin; row < span.end; ++row) scratch.offsets[row - span.begin] = row * source_.channels;
    }
    std::int64_t rows = span.end - span.begin;
    walk_positions(grid_.count, first, positions, [&](const PositionRun& run) {
      for (std::int64_t t = 0; t < taps_; ++t) {
        const TapReads reads = reads_of(grid_, grid_.taps[static_cast<std::size_t>(t)], source_, run);
        if (reads.count == 0) continue;
        const std::int64_t row = taps_ > 1 ? reads.position - span.begin : rows;
        add_to_runs(row, run.index + reads.first, reads.count, scratch.runs + t * positions, scratch.counts[t]);
        if (taps_ > 1) continue;
        for (std::int64_t i = 0; i < reads.count; ++i)
          scratch.offsets[rows++] = (reads.position + i * grid_.scale[2]) * source_.channels;
      }
    });
    return rows;
  }

  /// From a packed row that a tap reads to the next one.
  std::int64_t input_step() const { return functions_.rows * (taps_ > 1 ? grid_.scale[2] : 1); }

  /// The weights of input channels [first, last). Of each output they lie together.
  void write_weights(std::int64_t first, std::int64_t last) const {
    const std::int64_t all = shape_.taps(), width = functions_.width;
    for (std::int64_t o = 0; o < outputs_; o += width)
      for (std::int64_t at = first * all; at < last * all; at += kRowsTogether) {
        const std::int64_t count = std::min(kRowsTogether, last * all - at), columns = std::min(width, outputs_ - o);
        float rows[kRowsTogether * kMostTileWidth];
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t c = (at + i) / all, t = (at + i) % all;
          add_parts(gathers_ ? sums_of_panel(t * source_.channels + c, 0, o / width) : sums_of_panel(c, t, o / width),
                    rows + i * width);
        }
        transpose_rows(rows, width, count, columns, weight_ + o * source_.channels * all + at, source_.channels * all);
      }
  }

  /// The first part's, of all outputs of a panel.
  const float* sums_of_panel(std::int64_t channel, std::int64_t tap, std::int64_t panel) const {
    return sums_of(0) + places_[static_cast<std::size_t>(channel)] + (panel * taps_ + tap) * functions_.rows * functions_.width;
  }

  /// Of all parts, in their order.
  void add_parts(const float* from, float* to) const {
    const std::int64_t width = functions_.width;
    std::copy_n(from, width, to);
    for (std::int64_t part = 1; part < parts_; ++part) {
      from += part_bytes() / kElement;
      for (std::int64_t j = 0; j < width; ++j) to[j] += from[j];
    }
  }

  const ConvolutionFunctions& functions_;
  ConvolutionShape shape_;
  TapGrid grid_;
  PositionedChannels source_;
  const float *input_, *gradient_;
  float* weight_;
  std::int64_t positions_, outputs_;
  bool gathers_ = false;
  std::int64_t taps_ = 0, channels_ = 0;  // of a row that is summed: all taps and channels are one where rows are gathered
  std::int64_t panels_ = 0, channel_tiles_ = 0, tile_stride_ = 0;
  std::vector<std::int64_t> tile_channels_;  // the first of each tile, and behind the last
  std::vector<std::int64_t> places_;         // of each channel among the sums, for the first panel and tap
  std::int64_t blocks_ = 1, parts_ = 1, ranges_ = 1, most_span_ = 0;
  Workspace workspace_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_blocked_weight_gradient(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  return std::make_unique<BlockedWeightGradient>(call, operands);
}

}  // namespace gcomp::runtime::cpu
