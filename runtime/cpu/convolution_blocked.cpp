// Convolutions and the gradients of their inputs. Weights are packed into panels of output channels: all of them first, by all
// threads, and then a task is a block of positions and a range of panels; or, where many weights meet few positions, each panel by
// the task that takes it past all positions, while it stays in the second cache.
#include "runtime/cpu/convolution_blocked.h"

#include <algorithm>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_areas.h"
#include "runtime/cpu/convolution_panels.h"
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

class BlockedConvolution final : public LibraryCall {
 public:
  BlockedConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : functions_(*operands.backend.convolution), shape_(shape_of(call)), areas_(shape_, call.kind, taps_for(call)) {
    const bool forward = call.kind == ConvolutionKind::forward;
    const std::int64_t taps = shape_.taps();
    std::int64_t inputs = shape_.group_inputs, outputs = shape_.group_outputs;
    order_ = {taps, forward ? inputs * taps : taps, forward ? taps : inputs * taps};
    group_weights_ = outputs * inputs * taps;
    weight_ = reinterpret_cast<const float*>(operands.weight);
    input_ = reinterpret_cast<const float*>(forward ? operands.input : operands.output);
    target_ = reinterpret_cast<float*>(forward ? operands.output : operands.input);
    channels_ = forward ? inputs : outputs;
    results_ = forward ? outputs : inputs;
    lines_ = taps_for(call) == ConvolutionAreas::Taps::lines;
    group_panels_ = quotient_up(results_, functions_.width);
    panels_ = shape_.groups * group_panels_;
    for (const TapGrid& grid : areas_.grids()) add_grid(grid);
    panels_meet_few_ =
        has_many_weights() && shape_.batch * (forward ? shape_.positions() : shape_.input_positions()) <= kFewPositions;
    all_areas_ = areas_.cut(block_rows());
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
    pool.run(static_cast<std::int64_t>(passes_.size()) * panels_, [this](std::int64_t first, std::int64_t last, int) {
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
  struct Task {
    const ConvolutionArea* area;
    std::int64_t panel, panels;  // of all groups, one after the other
  };

  static ConvolutionAreas::Taps taps_for(const ConvolutionCall& call) {
    const bool few = call.kind == ConvolutionKind::forward && call.groups == 1 && call.input_channels < kFewChannels;
    return few && call.dilations.back() == 1 ? ConvolutionAreas::Taps::lines : ConvolutionAreas::Taps::places;
  }

  void add_grid(const TapGrid& grid) {
    const auto taps = static_cast<std::int64_t>(grid.taps.size());
    Passes passes{taps, channels_, channels_, packed_rows_, tap_numbers(grid.taps, order_.places)};
    if (lines_) passes.taps = taps / shape_.kernel[2], passes.channels = passes.depth = channels_ * shape_.kernel[2];
    else if (taps > 0) passes.depth = depth_of_pass(taps);
    packed_rows_ += passes.taps * passes.channels;
    passes_.push_back(passes);
  }

  /// As even as may be. Of elements, which decide of bits: as many for pairs of them as for one at a time.
  std::int64_t depth_of_pass(std::int64_t taps) const {
    const std::int64_t channels = channels_ * functions_.elements;
    const std::int64_t most = std::max(kFewestChannels, kDepth / taps), passes = quotient_up(channels, most);
    return std::min(channels, quotient_up(quotient_up(channels, passes), 4) * 4) / functions_.elements;
  }

  /// Which outputs a task computes changes no bits.
  void add_tasks(int threads) {
    const std::int64_t wanted = kTasksOfThread * threads, areas = static_cast<std::int64_t>(all_areas_.size());
    const std::int64_t parts = std::clamp<std::int64_t>(has_many_weights() ? wanted : quotient_up(wanted, areas), 1, panels_);
    const std::int64_t panels = quotient_up(panels_, parts);
    for (std::int64_t panel = 0; panel < panels_; panel += panels)
      for (const ConvolutionArea& area : all_areas_) tasks_.push_back({&area, panel, std::min(panels, panels_ - panel)});
    // Where pieces have more taps and less, what a thread begins with is as good as any other's.
    const auto reach = [this](const Task& task) { return static_cast<double>(task.panel) + areas_.before(*task.area); };
    std::stable_sort(tasks_.begin(), tasks_.end(), [&](const Task& a, const Task& b) { return reach(a) < reach(b); });
  }

  /// Each panel is a task.
  void run_panels(ThreadPool& pool) {
    pool.run(panels_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t panel = first; panel < last; ++panel) {
        const PackedPanels own{reinterpret_cast<float*>(workspace_.of_thread(thread) + task_bytes()), panel, 1};
        for (std::size_t g = 0; g < passes_.size(); ++g) pack(g, panel, own);
        for (const ConvolutionArea& area : all_areas_) run_task({&area, panel, 1}, own, thread);
      }
    });
  }

  bool has_many_weights() const { return packed_rows_ * panels_ * functions_.width * kElement >= kManyWeightBytes; }
  std::int64_t block_rows() const { return has_many_weights() ? kManyBlockRows : kBlockRows; }
  std::int64_t task_bytes() const { return areas_.lists_bytes(block_rows()); }

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
    const std::int64_t width = functions_.width, output = panel % group_panels_ * width,
                       columns = std::min(width, results_ - output);
    const float* weight = weight_ + panel / group_panels_ * group_weights_ + output * order_.result_step;
    for (std::int64_t first = 0; first < passes.channels; first += passes.depth) {
      const std::int64_t depth = std::min(passes.depth, passes.channels - first);
      float* to = panel_of(packed, passes, first, depth, panel);
      const PanelPart part{weight + first * order_.channel_step, columns, lines_ ? passes.taps * depth : depth, width};
      if (lines_) pack_gathered_panel(part, order_, channels_, areas_.grids()[g].taps, to);
      else pack_panel(part, order_, passes.tap_numbers, to);
    }
  }

  void run_task(const Task& task, const PackedPanels& packed, int thread) const {
    const ConvolutionArea& area = *task.area;
    const ConvolutionAreas::Lists lists = areas_.find(area, block_rows(), workspace_.of_thread(thread));
    ConvolutionBlock block{.positions = area.positions,
                           .taps = areas_.taps_of(area),
                           .sources = lists.sources,
                           .targets = lists.targets,
                           .tap_offsets = lists.tap_offsets,
                           .tap_numbers = lists.tap_numbers};
    const std::int64_t end = task.panel + task.panels;
    for (std::int64_t panel = task.panel, next = 0; panel < end; panel = next) {
      next = std::min(end, (panel / group_panels_ + 1) * group_panels_);
      run_panels_of_group(panel, next - panel, packed, area, block);
    }
  }

  void run_panels_of_group(std::int64_t panel, std::int64_t panels, const PackedPanels& packed, const ConvolutionArea& area,
                           ConvolutionBlock& block) const {
    const Passes& passes = passes_[areas_.grid_of(area)];
    const std::int64_t width = functions_.width, group = panel / group_panels_, output = panel % group_panels_ * width;
    block.outputs = std::min(results_ - output, panels * width);
    float* const target = target_ + group * results_ + output;
    if (block.taps == 0) {
      for (std::int64_t p = 0; p < area.positions; ++p) std::fill_n(target + block.targets[p], block.outputs, 0.0f);
      return;
    }
    block.target = target;
    for (std::int64_t first = 0; first < passes.channels; first += passes.depth) {
      const std::int64_t depth = std::min(passes.depth, passes.channels - first);
      block.channels = lines_ ? areas_.line_places(area) * channels_ : depth;
      block.tap_stride = depth * width;
      block.panel_stride = passes.taps * block.tap_stride;
      block.weights = panel_of(packed, passes, first, depth, panel) + (lines_ ? areas_.line_begin(area) * channels_ * width : 0);
      block.input = input_ + group * channels_ + first;
      block.add = first > 0;
      functions_.convolve(block);
    }
  }

  const ConvolutionFunctions& functions_;
  ConvolutionShape shape_;
  ConvolutionAreas areas_;
  std::vector<Passes> passes_;  // of each grid
  const float *weight_, *input_;
  float* target_;
  WeightOrder order_;
  std::int64_t channels_ = 0, results_ = 0, group_weights_ = 0;  // of a group
  bool lines_ = false;
  std::int64_t group_panels_ = 0, panels_ = 0, packed_rows_ = 0;
  bool panels_meet_few_ = false, packs_itself_ = false;  // each task its panel
  std::vector<ConvolutionArea> all_areas_;
  std::vector<Task> tasks_;
  Workspace workspace_;
};

}  // namespace

bool takes_blocked(const ConvolutionCall& call) { return call.dtype == DType::f32 && call.channels_last; }

std::unique_ptr<LibraryCall> make_blocked_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return make_blocked_weight_gradient(call, operands);
  return std::make_unique<BlockedConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
