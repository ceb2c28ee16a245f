// Convolutions and the gradients of their inputs. A task is a block of positions and a range of output channels; a block's weights
// are packed into panels first, by all threads.
#include "runtime/cpu/convolution_blocked.h"

#include <algorithm>

#include "runtime/cpu/convolution_grid.h"
#include "runtime/cpu/convolution_rows.h"
#include "runtime/cpu/convolution_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kBlockRows = 96;  // positions of a block: a multiple of every tile's
// Weights of a panel that one pass sums over, about: they stay in the first cache.
constexpr std::int64_t kDepth = 448;
constexpr std::int64_t kChannelMultiple = 16;
// At least, where output channels can be divided.
constexpr std::int64_t kTasksOfThread = 4;

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
    output_step_ = forward ? inputs * taps : taps;
    channel_step_ = forward ? taps : inputs * taps;
    gathers_ = forward && inputs < kFewChannels && taps > 1;
    panels_ = (result_.channels + functions_.width - 1) / functions_.width;
    for (const TapGrid& grid : grids_) add_grid(grid);
  }

  WorkspaceSize workspace() const override {
    return {aligned_size(packed_elements_ * kElement), sources_bytes() + targets_bytes() + zeros_bytes() + rows_bytes()};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    add_tasks(threads);
  }

  void run(ThreadPool& pool) override {
    pool.run(static_cast<std::int64_t>(grids_.size()) * panels_, [this](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) pack(static_cast<std::size_t>(i / panels_), i % panels_);
    });
    pool.run(static_cast<std::int64_t>(tasks_.size()), [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) run_task(tasks_[static_cast<std::size_t>(i)], thread);
    });
  }

 private:
  static constexpr std::int64_t kElement = sizeof(float);

  /// How a grid's sums are cut: `depth` channels a pass, of `taps` taps.
  struct Passes {
    std::int64_t taps, channels, depth, packed;  // packed: where its panels begin
  };
  struct Task {
    std::size_t grid;
    std::int64_t first, positions, panel, panels;
  };

  void add_grid(const TapGrid& grid) {
    const auto taps = static_cast<std::int64_t>(grid.taps.size());
    Passes passes{taps, source_.channels, source_.channels, packed_elements_};
    if (gathers_) passes = {1, taps * source_.channels, taps * source_.channels, packed_elements_};
    else if (taps > 0)
      passes.depth = std::min(source_.channels, std::max(kChannelMultiple, kDepth / taps / kChannelMultiple * kChannelMultiple));
    packed_elements_ += passes.taps * passes.channels * panels_ * functions_.width;
    most_taps_ = std::max(most_taps_, passes.taps);
    most_depth_ = std::max(most_depth_, passes.depth);
    passes_.push_back(passes);
  }

  /// Which outputs a task computes changes no bits.
  void add_tasks(int threads) {
    const std::int64_t wanted = kTasksOfThread * threads;
    std::int64_t blocks = 0;
    for (const TapGrid& grid : grids_) blocks += (shape_.batch * grid.positions() + kBlockRows - 1) / kBlockRows;
    const std::int64_t parts = std::clamp<std::int64_t>((wanted + blocks - 1) / blocks, 1, panels_);
    const std::int64_t panels = (panels_ + parts - 1) / parts;
    for (std::size_t g = 0; g < grids_.size(); ++g) {
      const std::int64_t positions = shape_.batch * grids_[g].positions();
      for (std::int64_t panel = 0; panel < panels_; panel += panels)
        for (std::int64_t first = 0; first < positions; first += kBlockRows)
          tasks_.push_back({g, first, std::min(kBlockRows, positions - first), panel, std::min(panels, panels_ - panel)});
    }
  }

  std::int64_t sources_bytes() const { return aligned_size(kBlockRows * most_taps_ * 8); }
  static std::int64_t targets_bytes() { return aligned_size(kBlockRows * 8); }
  std::int64_t zeros_bytes() const { return aligned_size(most_depth_ * kElement); }
  std::int64_t rows_bytes() const { return gathers_ ? aligned_size(kBlockRows * most_depth_ * kElement) : 0; }

  float* packed_of(const Passes& passes, std::int64_t channel) const {
    return reinterpret_cast<float*>(workspace_.shared) + passes.packed + channel * passes.taps * panels_ * functions_.width;
  }

  /// One panel of all passes of a grid.
  void pack(std::size_t g, std::int64_t panel) const {
    const Passes& passes = passes_[g];
    const std::vector<Tap>& taps = grids_[g].taps;
    const std::int64_t width = functions_.width, output = panel * width, columns = std::min(width, result_.channels - output);
    for (std::int64_t first = 0; first < passes.channels; first += passes.depth) {
      const std::int64_t depth = std::min(passes.depth, passes.channels - first);
      float* to = packed_of(passes, first) + panel * passes.taps * depth * width;
      if (columns < width) std::fill_n(to, passes.taps * depth * width, 0.0f);
      const float* from = weight_ + output * output_step_;
      if (gathers_) {
        for (std::int64_t r = 0; r < depth; ++r) {
          const std::int64_t channel = r % source_.channels, tap = taps[static_cast<std::size_t>(r / source_.channels)].weight;
          for (std::int64_t j = 0; j < columns; ++j) to[r * width + j] = from[j * output_step_ + channel * channel_step_ + tap];
        }
      } else if (output_step_ > channel_step_) {
        // Lines of the weights are read to their ends, and few lines of the panel are written at a time.
        for (std::int64_t c = 0; c < depth; c += kChannelMultiple)
          for (std::int64_t j = 0; j < columns; ++j)
            pack_taps(taps, from + j * output_step_, first + c, std::min(kChannelMultiple, depth - c), depth * width,
                      to + c * width + j);
      } else {
        for (std::int64_t c = 0; c < depth; ++c)
          for (std::int64_t j = 0; j < columns; ++j)
            pack_taps(taps, from + j * output_step_, first + c, 1, depth * width, to + c * width + j);
      }
    }
  }

  /// One output of `channels` channels.
  void pack_taps(const std::vector<Tap>& taps, const float* from, std::int64_t channel, std::int64_t channels,
                 std::int64_t tap_stride, float* to) const {
    from += channel * channel_step_;
    const auto all = static_cast<std::int64_t>(taps.size()) == shape_.taps() ? shape_.taps() : 0;
    if (all == 1) {
      for (std::int64_t c = 0; c < channels; ++c) to[c * functions_.width] = from[c * channel_step_];
      return;
    }
    for (std::int64_t c = 0; c < channels; ++c, from += channel_step_, to += functions_.width) {
      for (std::int64_t t = 0; t < all; ++t) to[t * tap_stride] = from[t];
      if (all != 0) continue;
      float* at = to;
      for (const Tap& tap : taps) {
        *at = from[tap.weight];
        at += tap_stride;
      }
    }
  }

  void run_task(const Task& task, int thread) const {
    const TapGrid& grid = grids_[task.grid];
    const Passes& passes = passes_[task.grid];
    std::byte* scratch = workspace_.of_thread(thread);
    auto* sources = reinterpret_cast<std::int64_t*>(scratch);
    auto* targets = reinterpret_cast<std::int64_t*>(scratch + sources_bytes());
    auto* zeros = reinterpret_cast<float*>(scratch + sources_bytes() + targets_bytes());
    auto* rows = reinterpret_cast<float*>(scratch + sources_bytes() + targets_bytes() + zeros_bytes());
    std::fill_n(zeros, most_depth_, 0.0f);
    find_targets(grid, task, targets);
    if (gathers_) {
      gather_rows(grid, shape_, source_, input_, task.first, task.positions, rows);
      for (std::int64_t p = 0; p < task.positions; ++p) sources[p] = p * passes.channels;
    } else {
      find_sources(grid, task, sources);
    }
    const std::int64_t width = functions_.width, output = task.panel * width;
    if (passes.taps == 0) {
      const std::int64_t outputs = std::min(result_.channels - output, task.panels * width);
      for (std::int64_t p = 0; p < task.positions; ++p) std::fill_n(target_ + targets[p] + output, outputs, 0.0f);
      return;
    }
    ConvolutionBlock block{.positions = task.positions,
                           .taps = passes.taps,
                           .outputs = std::min(result_.channels - output, task.panels * width),
                           .sources = sources,
                           .targets = targets,
                           .zeros = zeros};
    block.target = target_ + output;
    for (std::int64_t first = 0; first < passes.channels; first += passes.depth) {
      block.channels = std::min(passes.depth, passes.channels - first);
      block.tap_stride = block.channels * width;
      block.panel_stride = passes.taps * block.tap_stride;
      block.weights = packed_of(passes, first) + task.panel * block.panel_stride;
      block.input = (gathers_ ? rows : input_) + first;
      block.add = first > 0;
      functions_.convolve(block);
    }
  }

  void find_targets(const TapGrid& grid, const Task& task, std::int64_t* targets) const {
    walk_positions(grid, task.first, task.positions, [&](const PositionRun& run) {
      const std::int64_t step = grid.step[2] * result_.channels;
      std::int64_t offset = result_.offset(run.image, grid.start[0] + run.depth * grid.step[0],
                                           grid.start[1] + run.height * grid.step[1], grid.start[2] + run.width * grid.step[2]);
      for (std::int64_t i = 0; i < run.count; ++i, offset += step) targets[run.index + i] = offset;
    });
  }

  void find_sources(const TapGrid& grid, const Task& task, std::int64_t* sources) const {
    const auto taps = static_cast<std::int64_t>(grid.taps.size()), rows = functions_.rows;
    walk_positions(grid, task.first, task.positions, [&](const PositionRun& run) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const auto place = [&](std::int64_t i) -> std::int64_t& {
          const std::int64_t p = run.index + i;
          return sources[(p / rows * taps + t) * rows + p % rows];
        };
        walk_tap(
            grid, grid.taps[static_cast<std::size_t>(t)], source_, run,
            [&](std::int64_t i, std::int64_t offset) { place(i) = offset; }, [&](std::int64_t i) { place(i) = kPaddingOffset; });
      }
    });
  }

  const ConvolutionFunctions& functions_;
  ConvolutionShape shape_;
  std::vector<TapGrid> grids_;
  std::vector<Passes> passes_;  // of each grid
  const float *weight_, *input_;
  float* target_;
  PositionedChannels source_, result_;
  std::int64_t output_step_, channel_step_;  // of the weights, from one result or summed channel to the next
  bool gathers_;
  std::int64_t panels_, packed_elements_ = 0, most_taps_ = 0, most_depth_ = 0;
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
  const bool strided = std::any_of(call.strides.begin(), call.strides.end(), [](std::int64_t stride) { return stride > 1; });
  return call.input_channels >= kFewChannels && (taps > 1 || !strided);
}

std::unique_ptr<LibraryCall> make_blocked_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return make_blocked_weight_gradient(call, operands);
  return std::make_unique<BlockedConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
