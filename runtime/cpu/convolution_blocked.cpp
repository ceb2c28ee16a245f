// Convolutions and the gradients of their inputs. Weights are packed into panels of output channels: all of them first, by all
// threads, and then a task is a block of positions and a range of panels; or, where many weights meet few positions, each panel by
// the task that takes it past all positions, while it stays in the second cache.
#include "runtime/cpu/convolution_blocked.h"

#include <algorithm>
#include <utility>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_grid.h"
#include "runtime/cpu/convolution_panels.h"
#include "runtime/cpu/convolution_rows.h"
#include "runtime/cpu/convolution_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kBlockRows = 96;  // positions of a block, about
// The same where the weights are more than stay in the second cache: they are read for each block.
constexpr std::int64_t kManyBlockRows = 288, kManyWeightBytes = 1 << 20;
constexpr std::int64_t kFewPositions = 4096;  // of the result: there each panel of many weights may be a task
// Weights of a panel that one pass sums over, about: they stay in the second cache.
constexpr std::int64_t kDepth = 1152;
constexpr std::int64_t kFewestChannels = 16;  // of a pass
// At least, where output channels can be divided.
constexpr std::int64_t kTasksOfThread = 4;

using Triple = ConvolutionShape::Triple;

class BlockedConvolution final : public LibraryCall {
 public:
  BlockedConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : functions_(*operands.backend.convolution), shape_(shape_of(call)), grids_(tap_grids(shape_, call.kind)) {
    const bool forward = call.kind == ConvolutionKind::forward;
    const std::int64_t taps = shape_.taps(), inputs = shape_.group_inputs, outputs = shape_.group_outputs;
    weight_ = reinterpret_cast<const float*>(operands.weight);
    input_ = reinterpret_cast<const float*>(forward ? operands.input : operands.output);
    target_ = reinterpret_cast<float*>(forward ? operands.output : operands.input);
    source_ = forward ? PositionedChannels{shape_.input, inputs} : PositionedChannels{shape_.output, outputs};
    result_ = forward ? PositionedChannels{shape_.output, outputs} : PositionedChannels{shape_.input, inputs};
    order_ = {taps, forward ? inputs * taps : taps, forward ? taps : inputs * taps};
    gathers_ = forward && inputs < kFewChannels && taps > 1;
    panels_ = (result_.channels + functions_.width - 1) / functions_.width;
    for (const TapGrid& grid : grids_) add_grid(grid);
    panels_meet_few_ =
        has_many_weights() && shape_.batch * (forward ? shape_.positions() : shape_.input_positions()) <= kFewPositions;
    for (std::size_t p = 0; p < pieces_.size(); ++p) add_areas(p);
  }

  WorkspaceSize workspace() const override {
    const std::int64_t panel = packed_rows_ * functions_.width * kElement;
    return {aligned_size(panels_ * panel), task_bytes() + (panels_meet_few_ ? panel : 0)};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    // Where panels are whole rounds of the threads, or nearly.
    const std::int64_t turns = quotient_up(panels_, threads) * threads;
    packs_itself_ = panels_meet_few_ && turns * 8 <= panels_ * 9;
    if (!packs_itself_) add_tasks(threads);
  }

  void run(ThreadPool& pool) override {
    if (packs_itself_) return run_panels(pool);
    pool.run(static_cast<std::int64_t>(grids_.size()) * panels_, [this](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) pack(static_cast<std::size_t>(i / panels_), i % panels_, all_panels());
    });
    pool.run(static_cast<std::int64_t>(tasks_.size()), [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) run_task(tasks_[static_cast<std::size_t>(i)], all_panels(), thread);
    });
  }

 private:
  static constexpr std::int64_t kElement = sizeof(float);

  /// How a grid's sums are cut: `depth` channels a pass, of `taps` taps.
  struct Passes {
    std::int64_t taps, channels, depth, before;  // before: rows of panels that precede its own
    std::vector<std::int64_t> tap_numbers;       // of each place of the kernel
  };
  /// Positions that read by the same taps, none of which is padding.
  struct Piece {
    std::size_t grid;
    GridPiece at;
  };
  /// Of a piece, for all images.
  struct Area {
    std::size_t piece;
    std::int64_t first, positions;
  };
  struct Task {
    const Area* area;
    std::int64_t panel, panels;
  };

  void add_grid(const TapGrid& grid) {
    const auto taps = static_cast<std::int64_t>(grid.taps.size());
    Passes passes{taps, source_.channels, source_.channels, packed_rows_, tap_numbers(grid.taps, order_.places)};
    if (gathers_) passes.taps = 1, passes.channels = passes.depth = taps * source_.channels;
    else if (taps > 0) passes.depth = depth_of_pass(taps);
    packed_rows_ += passes.taps * passes.channels;
    most_taps_ = std::max(most_taps_, passes.taps);
    most_depth_ = std::max(most_depth_, passes.depth);
    passes_.push_back(passes);
    // What is gathered has zeros for what lies in the padding.
    if (gathers_) pieces_.push_back({passes_.size() - 1, {.count = grid.count, .taps = {1, 1, 1}}});
    else
      for (const GridPiece& piece : pieces_of(grid, source_.extent)) pieces_.push_back({passes_.size() - 1, piece});
  }

  /// As even as may be.
  std::int64_t depth_of_pass(std::int64_t taps) const {
    const std::int64_t most = std::max(kFewestChannels, kDepth / taps), passes = quotient_up(source_.channels, most);
    return std::min(source_.channels, quotient_up(quotient_up(source_.channels, passes), 4) * 4);
  }

  void add_areas(std::size_t piece) {
    const std::int64_t positions = shape_.batch * pieces_[piece].at.positions(), count = quotient_up(positions, block_rows());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = positions * i / count;
      areas_.push_back({piece, first, positions * (i + 1) / count - first});
    }
  }

  /// Which outputs a task computes changes no bits.
  void add_tasks(int threads) {
    const std::int64_t wanted = kTasksOfThread * threads, areas = static_cast<std::int64_t>(areas_.size());
    const std::int64_t parts = std::clamp<std::int64_t>(has_many_weights() ? wanted : quotient_up(wanted, areas), 1, panels_);
    const std::int64_t panels = quotient_up(panels_, parts);
    for (std::int64_t panel = 0; panel < panels_; panel += panels)
      for (const Area& area : areas_) tasks_.push_back({&area, panel, std::min(panels, panels_ - panel)});
    // Where pieces have more taps and less, what a thread begins with is as good as any other's.
    const auto reach = [this](const Task& task) {
      const double positions = static_cast<double>(shape_.batch * pieces_[task.area->piece].at.positions());
      return static_cast<double>(task.panel) + static_cast<double>(task.area->first) / positions;
    };
    std::stable_sort(tasks_.begin(), tasks_.end(), [&](const Task& a, const Task& b) { return reach(a) < reach(b); });
  }

  /// Each panel is a task.
  void run_panels(ThreadPool& pool) {
    pool.run(panels_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t panel = first; panel < last; ++panel) {
        const PackedPanels own{reinterpret_cast<float*>(workspace_.of_thread(thread) + task_bytes()), panel, 1};
        for (std::size_t g = 0; g < grids_.size(); ++g) pack(g, panel, own);
        for (const Area& area : areas_) run_task({&area, panel, 1}, own, thread);
      }
    });
  }

  bool has_many_weights() const { return packed_rows_ * panels_ * functions_.width * kElement >= kManyWeightBytes; }
  std::int64_t block_rows() const { return has_many_weights() ? kManyBlockRows : kBlockRows; }
  std::int64_t positions_bytes() const { return aligned_size(block_rows() * 8); }
  std::int64_t taps_bytes() const { return aligned_size(most_taps_ * 8); }
  std::int64_t rows_bytes() const { return gathers_ ? aligned_size(block_rows() * most_depth_ * kElement) : 0; }

  std::int64_t task_bytes() const { return 2 * positions_bytes() + 2 * taps_bytes() + rows_bytes(); }

  /// Where panels are that have been packed: [grid][pass][panel][tap][channel][width].
  struct PackedPanels {
    float* begin;
    std::int64_t first, count;
  };
  PackedPanels all_panels() const { return {reinterpret_cast<float*>(workspace_.shared), 0, panels_}; }

  /// A panel of the pass of `depth` channels from `channel` on.
  float* panel_of(const PackedPanels& packed, const Passes& passes, std::int64_t channel, std::int64_t depth,
                  std::int64_t panel) const {
    const std::int64_t rows = (passes.before + channel * passes.taps) * packed.count + (panel - packed.first) * passes.taps * depth;
    return packed.begin + rows * functions_.width;
  }

  /// One panel of all passes of a grid. One whose taps all fall between source positions has none.
  void pack(std::size_t g, std::int64_t panel, const PackedPanels& packed) const {
    const Passes& passes = passes_[g];
    if (passes.taps == 0) return;
    const std::int64_t width = functions_.width, output = panel * width, columns = std::min(width, result_.channels - output);
    for (std::int64_t first = 0; first < passes.channels; first += passes.depth) {
      const std::int64_t depth = std::min(passes.depth, passes.channels - first);
      float* to = panel_of(packed, passes, first, depth, panel);
      const PanelPart part{weight_ + output * order_.result_step + first * order_.channel_step, columns, depth, width};
      if (gathers_) pack_gathered_panel(part, order_, source_.channels, grids_[g].taps, to);
      else pack_panel(part, order_, passes.tap_numbers, to);
    }
  }

  void run_task(const Task& task, const PackedPanels& packed, int thread) const {
    const Area& area = *task.area;
    const Piece& piece = pieces_[area.piece];
    const TapGrid& grid = grids_[piece.grid];
    const Passes& passes = passes_[piece.grid];
    std::byte* scratch = workspace_.of_thread(thread);
    const auto take = [&](std::int64_t bytes) { return reinterpret_cast<std::int64_t*>(std::exchange(scratch, scratch + bytes)); };
    std::int64_t *sources = take(positions_bytes()), *targets = take(positions_bytes());
    std::int64_t *tap_offsets = take(taps_bytes()), *numbers = take(taps_bytes());
    auto* rows = reinterpret_cast<float*>(scratch);
    find_targets(grid, piece.at, area, targets);
    const std::int64_t width = functions_.width, output = task.panel * width;
    if (piece.at.all_taps() == 0) {
      const std::int64_t outputs = std::min(result_.channels - output, task.panels * width);
      for (std::int64_t p = 0; p < area.positions; ++p) std::fill_n(target_ + targets[p] + output, outputs, 0.0f);
      return;
    }
    if (gathers_) {
      gather_rows(grid, shape_, source_, input_, area.first, area.positions, rows);
      for (std::int64_t p = 0; p < area.positions; ++p) sources[p] = p * passes.channels;
      *tap_offsets = *numbers = 0;
    } else {
      find_sources(grid, piece.at, area, sources);
      find_taps(grid, piece.at, tap_offsets, numbers);
    }
    ConvolutionBlock block{.positions = area.positions,
                           .taps = piece.at.all_taps(),
                           .outputs = std::min(result_.channels - output, task.panels * width),
                           .sources = sources,
                           .targets = targets,
                           .tap_offsets = tap_offsets,
                           .tap_numbers = numbers};
    block.target = target_ + output;
    for (std::int64_t first = 0; first < passes.channels; first += passes.depth) {
      block.channels = std::min(passes.depth, passes.channels - first);
      block.tap_stride = block.channels * width;
      block.panel_stride = passes.taps * block.tap_stride;
      block.weights = panel_of(packed, passes, first, block.channels, task.panel);
      block.input = (gathers_ ? rows : input_) + first;
      block.add = first > 0;
      functions_.convolve(block);
    }
  }

  /// Where channels of a piece's positions begin: those at start + i * step of each dimension.
  static void find_positions(const PositionedChannels& channels, const Triple& start, const Triple& step, const GridPiece& piece,
                             const Area& area, std::int64_t* offsets) {
    walk_positions(piece.count, area.first, area.positions, [&](const PositionRun& run) {
      const std::int64_t next = step[2] * channels.channels;
      std::int64_t offset = channels.offset(run.image, start[0] + run.depth * step[0], start[1] + run.height * step[1],
                                            start[2] + run.width * step[2]);
      for (std::int64_t i = 0; i < run.count; ++i, offset += next) offsets[run.index + i] = offset;
    });
  }

  void find_targets(const TapGrid& grid, const GridPiece& piece, const Area& area, std::int64_t* targets) const {
    Triple start{};
    for (std::size_t i = 0; i < 3; ++i) start[i] = grid.start[i] + piece.first[i] * grid.step[i];
    find_positions(result_, start, grid.step, piece, area, targets);
  }

  static std::int64_t offset_of(const TapGrid& grid, std::size_t dimension, std::int64_t tap) {
    return grid.along[dimension][static_cast<std::size_t>(tap)];
  }

  void find_sources(const TapGrid& grid, const GridPiece& piece, const Area& area, std::int64_t* sources) const {
    Triple start{};
    for (std::size_t i = 0; i < 3; ++i) start[i] = piece.first[i] * grid.scale[i] + offset_of(grid, i, piece.first_tap[i]);
    find_positions(source_, start, grid.scale, piece, area, sources);
  }

  void find_taps(const TapGrid& grid, const GridPiece& piece, std::int64_t* offsets, std::int64_t* numbers) const {
    const auto count = [&](std::size_t i) { return static_cast<std::int64_t>(grid.along[i].size()); };
    walk_positions(piece.taps, 0, piece.all_taps(), [&](const PositionRun& run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        const Triple at{run.depth, run.height, run.width + i};
        Triple moved{};
        for (std::size_t d = 0; d < 3; ++d)
          moved[d] = offset_of(grid, d, piece.first_tap[d] + at[d]) - offset_of(grid, d, piece.first_tap[d]);
        offsets[run.index + i] = source_.offset(0, moved[0], moved[1], moved[2]);
        numbers[run.index + i] =
            ((piece.first_tap[0] + at[0]) * count(1) + piece.first_tap[1] + at[1]) * count(2) + piece.first_tap[2] + at[2];
      }
    });
  }

  const ConvolutionFunctions& functions_;
  ConvolutionShape shape_;
  std::vector<TapGrid> grids_;
  std::vector<Passes> passes_;  // of each grid
  std::vector<Piece> pieces_;
  const float *weight_, *input_;
  float* target_;
  PositionedChannels source_, result_;
  WeightOrder order_;
  bool gathers_;
  std::int64_t panels_, packed_rows_ = 0, most_taps_ = 0, most_depth_ = 0;
  bool panels_meet_few_ = false, packs_itself_ = false;  // each task its panel
  std::vector<Area> areas_;
  std::vector<Task> tasks_;
  Workspace workspace_;
};

}  // namespace

bool takes_blocked(const ConvolutionCall& call) { return call.dtype == DType::f32 && call.channels_last && call.groups == 1; }

bool is_fastest_blocked(const ConvolutionCall& call) {
  constexpr std::int64_t kLongRow = 128;  // of what is gathered
  const std::int64_t taps = shape_of(call).taps();
  if (call.output_channels < kFewChannels) return false;
  if (call.kind == ConvolutionKind::weight_gradient)
    return call.input_channels >= kFewChannels || taps * call.input_channels >= kLongRow;
  return call.input_channels >= kFewChannels;
}

std::unique_ptr<LibraryCall> make_blocked_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return make_blocked_weight_gradient(call, operands);
  return std::make_unique<BlockedConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
