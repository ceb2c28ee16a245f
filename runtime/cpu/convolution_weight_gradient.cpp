// Weight gradients of the blocked convolution. Positions are divided into parts by the shape alone, each with a sum of its own;
// the sums are added in order, and brought into the order of the weights. A part is summed block by block, several of them for each
// tile of sums: where those are all, the tile goes from the first cache to the weights.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_grid.h"
#include "runtime/cpu/convolution_panels.h"
#include "runtime/cpu/convolution_rows.h"
#include "runtime/cpu/convolution_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

// Of a block, about: what a tap reads of them stays in the first cache.
constexpr std::int64_t kBlockPositions = 256;
// Of the blocks that are summed together, positions of either activation, at most.
constexpr std::int64_t kMostTogether = 520, kMostBlocksTogether = 2;
// A few positions are no block of their own: each adds to all sums.
constexpr std::int64_t kFewPositions = 16;
// Of packed input, about: it stays in the second cache beside some panels of the gradient.
constexpr std::int64_t kPackedInputBytes = 256 << 10, kPackedPanels = 4;
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
        source_{shape_.input, shape_.groups * shape_.group_inputs},
        input_(operands.input),
        gradient_(operands.output),
        element_(kElement / functions_.elements),
        weight_(reinterpret_cast<float*>(operands.weight)),
        positions_(shape_.batch * shape_.positions()),
        outputs_(shape_.group_outputs) {
    gathers_ = shape_.groups == 1 && source_.channels < kFewChannels && grid_.taps.size() > 1;
    taps_ = gathers_ ? 1 : static_cast<std::int64_t>(grid_.taps.size());
    channels_ = gathers_ ? shape_.taps() * source_.channels : shape_.group_inputs;
    panels_ = quotient_up(outputs_, functions_.width);
    group_tiles_ = quotient_up(channels_, functions_.rows);
    channel_tiles_ = shape_.groups * group_tiles_;
    tile_stride_ = panels_ * taps_ * functions_.rows * functions_.width;
    number_channels();
    divide_positions();
    measure_blocks();
  }

  WorkspaceSize workspace() const override { return {parts_ * part_bytes(), 2 * tile_bytes() + together_ * block_bytes()}; }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    ranges_ = fastest_ranges(threads);
  }

  void run(ThreadPool& pool) override {
    pool.run(parts_ * ranges_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) run_task(i % parts_, i / parts_, thread);
    });
    if (sums_are_whole()) return;
    pool.run(channel_tiles_ * panels_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i)
        write_weights(i / panels_, i % panels_, sums_of_tile(0, i / panels_, i % panels_), thread);
    });
  }

 private:
  static constexpr std::int64_t kElement = sizeof(float);

  /// Each part has a sum of its own, so that this decides the bits.
  void divide_positions() {
    const std::int64_t multiplications = shape_.multiplications(), weights = shape_.weights();
    blocks_ = std::max<std::int64_t>(1, quotient_up(positions_ - kFewPositions, kBlockPositions));
    block_positions_ = quotient_up(positions_, blocks_);
    parts_ = std::clamp<std::int64_t>(std::min(kMostParts, kMostPartBytes / (weights * kElement)), 1, blocks_);
    while (parts_ > 1 && parts_ * weights * kPartCost * 10 > multiplications) parts_ /= 2;
  }

  /// Tiles have about as many channels as each other: one of few waits for its multiplications.
  void number_channels() {
    for (std::int64_t tile = 0; tile <= channel_tiles_; ++tile)
      tile_channels_.push_back(tile / group_tiles_ * channels_ + channels_ * (tile % group_tiles_) / group_tiles_);
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

  /// How far apart the rows are that a block reads, at most; how many blocks are summed together, and how many tiles of what they
  /// read are packed at once.
  void measure_blocks() {
    for (std::int64_t i = 0; !gathers_ && i < blocks_; ++i) {
      const Interval block = positions_of_block(i);
      const Interval span = span_of(block.begin, block.end - block.begin);
      most_span_ = std::max(most_span_, span.end - span.begin);
    }
    const std::int64_t of_part = std::min(kMostBlocksTogether, quotient_up(blocks_, parts_));
    if (!gathers_ && taps_ > 1)
      together_ = std::clamp<std::int64_t>(kMostTogether / std::max(block_positions_, most_rows()), 1, of_part);
    const std::int64_t fitting = std::max<std::int64_t>(1, kPackedInputBytes / (together_ * packed_tile_bytes()));
    packed_tiles_ = gathers_ ? channel_tiles_ : quotient_up(channel_tiles_, quotient_up(channel_tiles_, fitting));
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

  bool sums_are_whole() const { return together_ == blocks_; }
  std::int64_t part_bytes() const { return sums_are_whole() ? 0 : aligned_size(channel_tiles_ * tile_stride_ * kElement); }
  std::int64_t most_rows() const { return taps_ == 1 ? block_positions_ : most_span_; }
  std::int64_t runs_bytes() const { return aligned_size(taps_ * block_positions_ * static_cast<std::int64_t>(sizeof(TapRun))); }
  std::int64_t counts_bytes() const { return aligned_size(taps_ * 8); }
  std::int64_t offsets_bytes() const { return aligned_size(most_rows() * 8); }
  std::int64_t packed_gradient_bytes() const {
    return aligned_size(std::min(kPackedPanels, panels_) * block_positions_ * functions_.width * kElement);
  }
  /// An odd number of lines, as several tiles are written at once.
  std::int64_t packed_tile_bytes() const { return (aligned_size(most_rows() * functions_.rows * kElement) / 64 | 1) * 64; }
  std::int64_t packed_input_bytes() const { return gathers_ ? 0 : packed_tiles_ * packed_tile_bytes(); }
  std::int64_t rows_bytes() const { return gathers_ ? aligned_size(block_positions_ * channels_ * kElement) : 0; }
  std::int64_t block_bytes() const {
    return runs_bytes() + counts_bytes() + offsets_bytes() + packed_gradient_bytes() + packed_input_bytes() + rows_bytes();
  }
  std::int64_t tile_bytes() const { return aligned_size(taps_ * functions_.rows * functions_.width * kElement); }
  float* sums_of(std::int64_t part) const { return reinterpret_cast<float*>(workspace_.shared + part * part_bytes()); }

  /// A thread's scratch memory: of a tile and a panel the sums, and the weights [channel][tap][output].
  float* tile_sums_of(int thread) const { return reinterpret_cast<float*>(workspace_.of_thread(thread)); }
  float* tile_weights_of(int thread) const { return reinterpret_cast<float*>(workspace_.of_thread(thread) + tile_bytes()); }

  /// Behind these one of each block that is summed together.
  struct Block {
    TapRun* runs;
    std::int64_t *counts, *offsets;
    float *packed_gradient, *packed_input, *rows;
    std::int64_t first = 0, positions = 0, rows_read = 0;
  };
  Block block_of(int thread, std::int64_t index) const {
    std::byte* at = workspace_.of_thread(thread) + 2 * tile_bytes() + index * block_bytes();
    const auto take = [&](std::int64_t bytes) { return std::exchange(at, at + bytes); };
    Block block{};
    block.runs = reinterpret_cast<TapRun*>(take(runs_bytes()));
    block.counts = reinterpret_cast<std::int64_t*>(take(counts_bytes()));
    block.offsets = reinterpret_cast<std::int64_t*>(take(offsets_bytes()));
    block.packed_gradient = reinterpret_cast<float*>(take(packed_gradient_bytes()));
    block.packed_input = reinterpret_cast<float*>(take(packed_input_bytes()));
    block.rows = reinterpret_cast<float*>(at);
    return block;
  }

  /// What a task sums at once: some blocks of a part.
  struct Blocks {
    std::array<Block, kMostBlocksTogether> all;
    std::int64_t count = 0, part = 0;
    bool add = false;  ///< to the part's sums
    std::span<const Block> used() const { return {all.data(), static_cast<std::size_t>(count)}; }
  };

  void run_task(std::int64_t part, std::int64_t range, int thread) const {
    const Interval tiles = part_of(channel_tiles_, range, ranges_), part_blocks = part_of(blocks_, part, parts_);
    for (std::int64_t i = part_blocks.begin; i < part_blocks.end; i += together_) {
      Blocks blocks{.all = {}, .count = std::min(together_, part_blocks.end - i), .part = part, .add = i > part_blocks.begin};
      for (std::int64_t j = 0; j < blocks.count; ++j) {
        const auto [first, end] = positions_of_block(i + j);
        Block block = block_of(thread, j);
        block.first = first;
        block.positions = end - first;
        if (gathers_) gather(block);
        else find_read(block);
        blocks.all[static_cast<std::size_t>(j)] = block;
      }
      for (std::int64_t tile = tiles.begin; tile < tiles.end; tile += packed_tiles_)
        run_tiles(blocks, {tile, std::min(tiles.end, tile + packed_tiles_)}, thread);
    }
  }

  void run_tiles(const Blocks& blocks, const Interval& tiles, int thread) const {
    if (!gathers_) pack_input(blocks, tiles);
    for (std::int64_t tile = tiles.begin, next = 0; tile < tiles.end; tile = next) {
      const std::int64_t group = tile / group_tiles_;
      next = std::min(tiles.end, (group + 1) * group_tiles_);
      for (std::int64_t first = 0; first < panels_; first += kPackedPanels) {
        const Interval panels{first, std::min(panels_, first + kPackedPanels)};
        pack_gradient(blocks, group, panels);
        // A panel stays in the first cache for all tiles.
        for (std::int64_t panel = panels.begin; panel < panels.end; ++panel)
          for (std::int64_t t = tile; t < next; ++t) run_tile(blocks, {t, t - tiles.begin, panel, panel - panels.begin}, thread);
      }
    }
  }

  void pack_gradient(const Blocks& blocks, std::int64_t group, const Interval& panels) const {
    const std::int64_t output = panels.begin * functions_.width, stride = shape_.groups * outputs_;
    for (const Block& block : blocks.used())
      functions_.pack_gradient({.positions = block.positions,
                                .outputs = outputs_ - output,
                                .panels = panels.end - panels.begin,
                                .gradient = gradient_ + (block.first * stride + group * outputs_ + output) * element_,
                                .gradient_stride = stride,
                                .readable = stride - group * outputs_ - output,
                                .packed = block.packed_gradient});
  }

  void pack_input(const Blocks& blocks, const Interval& tiles) const {
    for (const Block& block : blocks.used())
      functions_.pack_input({.rows = block.rows_read,
                             .tiles = tiles.end - tiles.begin,
                             .row_offsets = block.offsets,
                             .channels = tile_channels_.data() + tiles.begin,
                             .last = tiles.end == channel_tiles_,
                             .input = input_,
                             .packed = block.packed_input,
                             .tile_stride = packed_tile_bytes() / kElement,
                             .pair_step = rows_step()});
  }

  /// A tile of channels and a panel of outputs, and their numbers among those that are packed.
  struct TileOfSums {
    std::int64_t tile, packed_tile, panel, packed_panel;
  };

  void run_tile(const Blocks& blocks, const TileOfSums& at, int thread) const {
    float* sums = sums_are_whole() ? tile_sums_of(thread) : sums_of_tile(blocks.part, at.tile, at.panel);
    bool add = blocks.add;
    for (const Block& block : blocks.used()) {
      functions_.multiply_weight_gradient({.taps = taps_,
                                           .channels = channels_of(at.tile),
                                           .outputs = columns_of(at.panel),
                                           .runs = block.runs,
                                           .run_stride = block.positions,
                                           .run_counts = block.counts,
                                           .input = gathers_
                                                        ? block.rows + first_channel_of(at.tile)
                                                        : block.packed_input + at.packed_tile * (packed_tile_bytes() / kElement),
                                           .input_step = input_step(),
                                           .gradient = block.packed_gradient + at.packed_panel * block.positions * functions_.width,
                                           .sums = sums,
                                           .add = add});
      add = true;
    }
    if (sums_are_whole()) write_weights(at.tile, at.panel, sums, thread);
  }

  void gather(const Block& block) const {
    gather_rows(grid_, shape_, source_, reinterpret_cast<const float*>(input_), block.first, block.positions, block.rows);
    block.runs[0] = {0, 0, static_cast<std::int32_t>(block.positions)};
    block.counts[0] = 1;
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

  /// Numbers the rows of the input that a block packs, and says which of them each tap reads. Several taps read nearly all that
  /// lies between the first and the last.
  void find_read(Block& block) const {
    std::fill_n(block.counts, taps_, 0);
    Interval span;
    if (taps_ > 1) {
      span = span_of(block.first, block.positions);
      for (std::int64_t row = span.begin; row < span.end; ++row) block.offsets[row - span.begin] = row * source_.channels;
    }
    block.rows_read = span.end - span.begin;
    walk_positions(grid_.count, block.first, block.positions, [&](const PositionRun& run) {
      for (std::int64_t t = 0; t < taps_; ++t) {
        const TapReads reads = reads_of(grid_, grid_.taps[static_cast<std::size_t>(t)], source_, run);
        if (reads.count == 0) continue;
        const std::int64_t row = taps_ > 1 ? reads.position - span.begin : block.rows_read;
        add_to_runs(row, run.index + reads.first, reads.count, block.runs + t * block.positions, block.counts[t]);
        if (taps_ > 1) continue;
        for (std::int64_t i = 0; i < reads.count; ++i)
          block.offsets[block.rows_read++] = (reads.position + i * grid_.scale[2]) * source_.channels;
      }
    });
  }

  /// From a row that a tap reads to the next one. What is gathered is read where it lies.
  std::int64_t input_step() const { return gathers_ ? channels_ : functions_.rows * rows_step(); }
  std::int64_t rows_step() const { return taps_ > 1 ? grid_.scale[2] : 1; }

  std::int64_t first_channel_of(std::int64_t tile) const { return tile_channels_[static_cast<std::size_t>(tile)]; }
  std::int64_t channels_of(std::int64_t tile) const { return first_channel_of(tile + 1) - first_channel_of(tile); }

  std::int64_t columns_of(std::int64_t panel) const { return std::min(functions_.width, outputs_ - panel * functions_.width); }

  float* sums_of_tile(std::int64_t part, std::int64_t tile, std::int64_t panel) const {
    return sums_of(part) + tile * tile_stride_ + panel * taps_ * functions_.rows * functions_.width;
  }

  /// The weights of a tile of channels and a panel of outputs, from the sums of the first part. Of each output those of a channel
  /// lie together.
  void write_weights(std::int64_t tile, std::int64_t panel, const float* sums, int thread) const {
    const std::int64_t width = functions_.width, group = tile / group_tiles_, channels = channels_of(tile),
                       first = first_channel_of(tile) - group * channels_, places = shape_.taps(), columns = columns_of(panel),
                       line = shape_.group_inputs * places;
    float* rows = tile_weights_of(thread);
    for (std::int64_t t = 0; t < taps_; ++t)
      for (std::int64_t c = 0; c < channels; ++c)
        add_parts(sums + (t * functions_.rows + c) * width, columns, rows + (c * taps_ + t) * width);
    float* to = weight_ + (group * outputs_ + panel * width) * line;
    if (!gathers_) {
      for (std::int64_t i = 0; i < channels * taps_; i += kRowsTogether)
        transpose_rows(rows + i * width, width, std::min(kRowsTogether, channels * taps_ - i), columns, to + first * places + i,
                       line);
      return;
    }
    for (std::int64_t i = 0; i < channels; ++i) {
      const std::int64_t c = (first + i) % source_.channels, t = (first + i) / source_.channels;
      transpose_rows(rows + i * width, width, 1, columns, to + c * places + t, line);
    }
  }

  /// A row of all parts, in their order.
  void add_parts(const float* from, std::int64_t columns, float* to) const {
    constexpr std::int64_t kTogether = 8;  // divides the width of any panel
    for (std::int64_t j = 0; j < columns; j += kTogether) {
      float sums[kTogether];
      std::copy_n(from + j, kTogether, sums);
      for (std::int64_t part = 1; part < parts_; ++part) {
        const float* more = from + part * (part_bytes() / kElement) + j;
        for (std::int64_t i = 0; i < kTogether; ++i) sums[i] += more[i];
      }
      std::copy_n(sums, kTogether, to + j);
    }
  }

  const ConvolutionFunctions& functions_;
  ConvolutionShape shape_;
  TapGrid grid_;
  PositionedChannels source_;
  const std::byte *input_, *gradient_;
  std::int64_t element_;  // bytes of theirs
  float* weight_;
  std::int64_t positions_, outputs_;  // outputs of a group
  bool gathers_ = false;
  std::int64_t taps_ = 0, channels_ = 0;  // of a row that is summed: all taps and channels are one where rows are gathered
  std::int64_t panels_ = 0, group_tiles_ = 0, channel_tiles_ = 0,
               tile_stride_ = 0;             // panels of a group, tiles of a group and of all
  std::vector<std::int64_t> tile_channels_;  // the first of each tile, and behind the last
  std::int64_t blocks_ = 1, parts_ = 1, ranges_ = 1, block_positions_ = 0, most_span_ = 0;
  std::int64_t together_ = 1, packed_tiles_ = 1;
  Workspace workspace_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_blocked_weight_gradient(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  return std::make_unique<BlockedWeightGradient>(call, operands);
}

}  // namespace gcomp::runtime::cpu
