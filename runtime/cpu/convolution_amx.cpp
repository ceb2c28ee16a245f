// Convolutions and the gradients of their inputs. All weights are packed first; a task is some panels of positions of a grid, each
// gathered a slab of steps at a time while it stays in the first cache.
#include "runtime/cpu/convolution_amx.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_panels.h"
#include "runtime/cpu/convolution_rows.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kElementBytes = 2;                  // bytes of an element
constexpr std::int64_t kSlabSteps = 16;                    // steps of a panel of positions
constexpr std::int64_t kMostPanels = 16, kMostSums = 128;  // panels of positions of a task, and of their sums
constexpr std::int64_t kManyTileWeights = 1 << 20;         // more than stay in the second cache beside the rest
constexpr std::int64_t kTileTasksOfThread = 4;

class TileConvolution final : public LibraryCall {
 public:
  TileConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : tiles_(*operands.backend.tiles), shape_(shape_of(call)), grids_(tap_grids(shape_, call.kind)) {
    const bool forward = call.kind == ConvolutionKind::forward;
    source_ = {shape_.input, call.input_channels};
    result_ = {shape_.output, call.output_channels};
    channels_ = shape_.group_inputs, results_ = shape_.group_outputs;
    const std::int64_t taps = shape_.taps();
    order_ = {taps, channels_ * taps, taps};
    if (!forward) {
      std::swap(source_, result_);
      std::swap(channels_, results_);
      std::swap(order_.result_step, order_.channel_step);
    }
    group_weights_ = shape_.group_inputs * shape_.group_outputs * taps;
    weight_ = reinterpret_cast<const std::uint16_t*>(operands.weight);
    input_ = reinterpret_cast<const std::uint16_t*>(forward ? operands.input : operands.output);
    target_ = reinterpret_cast<std::uint16_t*>(forward ? operands.output : operands.input);
    lines_ = gathers_lines(shape_, call.kind);
    panels_ = quotient_up(results_, kTilePanel);
    for (const TapGrid& grid : grids_) {
      const auto count = static_cast<std::int64_t>(grid.taps.size());
      const std::int64_t steps = lines_ ? quotient_up(count * channels_, kTileDepth) : count * quotient_up(channels_, kTileDepth);
      plans_.push_back({TapLines(grid, source_), steps, grid_steps_, shape_.batch * grid.positions()});
      grid_steps_ += steps;
      most_steps_ = std::max(most_steps_, steps);
    }
    panels_of_task_ = std::clamp<std::int64_t>(kMostSums / panels_, 1, kMostPanels);
  }

  WorkspaceSize workspace() const override {
    return {shape_.groups * panels_ * grid_steps_ * kPanelStep * kElementBytes, std::max(memory().bytes, reordered_bytes())};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    const std::int64_t wanted = kTileTasksOfThread * threads;
    const bool many_weights = panels_ * most_steps_ * kPanelStep * kElementBytes > kManyTileWeights;
    // Fewer positions a task read all weights for less; where these are many, tasks share them out instead.
    for (parts_ = 1; many_weights && count_tasks() < wanted && parts_ < std::min<std::int64_t>(panels_, threads);) ++parts_;
    while (count_tasks() < wanted && panels_of_task_ > 1) panels_of_task_ = (panels_of_task_ + 1) / 2;
    tasks_.clear();
    for (std::int64_t group = 0; group < shape_.groups; ++group)
      for (std::size_t g = 0; g < plans_.size(); ++g)
        for (std::int64_t part = 0; part < parts_; ++part)
          for (std::int64_t first = 0; first < plans_[g].positions; first += panels_of_task_ * kTilePanel)
            tasks_.push_back({group, g, first, panels_ * part / parts_, panels_ * (part + 1) / parts_});
  }

  void run(ThreadPool& pool) override {
    const auto grids = static_cast<std::int64_t>(plans_.size());
    pool.run(shape_.groups * grids * panels_, [&](std::int64_t first, std::int64_t last, int thread) {
      for (; first < last; ++first)
        pack_weights(first / panels_ / grids, static_cast<std::size_t>(first / panels_ % grids), first % panels_, thread);
    });
    pool.run(static_cast<std::int64_t>(tasks_.size()), [&](std::int64_t first, std::int64_t last, int thread) {
      tiles_.begin();
      for (; first < last; ++first) run_task(tasks_[static_cast<std::size_t>(first)], thread);
      tiles_.end();
    });
  }

 private:
  struct Plan {
    TapLines lines;
    std::int64_t steps, steps_before, positions;
  };
  struct Task {
    std::int64_t group;
    std::size_t grid;
    std::int64_t first, panel, last_panel;  // positions, panels of results
  };
  /// Where a task's data lie in a thread's memory, in bytes from its start.
  struct Memory {
    std::int64_t offsets = 0, masks = 0, sources = 0, gathered = 0, sums = 0, results = 0, rows = 0, bytes = 0;
  };

  std::int64_t count_tasks() const {
    std::int64_t count = 0;
    for (const Plan& plan : plans_) count += quotient_up(plan.positions, panels_of_task_ * kTilePanel);
    return shape_.groups * parts_ * count;
  }

  Memory memory() const {
    Memory memory;
    const auto take = [&](std::int64_t bytes) { return std::exchange(memory.bytes, memory.bytes + aligned_size(bytes)); };
    const std::int64_t positions = panels_of_task_ * kTilePanel;
    memory.offsets = take(positions * 8);
    memory.masks = take(positions * 8);
    memory.sources = take(kTilePanel * 8);
    memory.gathered = take(kSlabSteps * kPanelStep * kElementBytes);
    memory.sums = take(most_steps_ > kSlabSteps ? panels_of_task_ * panels_ * kPanelSums * 4 : 0);
    memory.results = take(kTilePanel * panels_ * kTilePanel * kElementBytes);
    memory.rows = take(lines_ ? positions * shape_.taps() * channels_ * kElementBytes : 0);
    return memory;
  }

  std::uint16_t* packed_panel(std::int64_t group, const Plan& plan, std::int64_t panel) const {
    return reinterpret_cast<std::uint16_t*>(workspace_.shared) +
           ((group * grid_steps_ + plan.steps_before) * panels_ + panel * plan.steps) * kPanelStep;
  }

  /// Weights of a panel of results in the order of the sum, of one tap or, in lines, of all.
  std::int64_t reordered_bytes() const { return kTilePanel * channels_ * (lines_ ? shape_.taps() : 1) * kElementBytes; }

  void pack_weights(std::int64_t group, std::size_t g, std::int64_t panel, int thread) const {
    const Plan& plan = plans_[g];
    const std::vector<Tap>& taps = grids_[g].taps;
    const std::int64_t lines = std::min(results_ - panel * kTilePanel, kTilePanel);
    const std::uint16_t* const from = weight_ + group * group_weights_ + panel * kTilePanel * order_.result_step;
    auto* const rows = reinterpret_cast<std::uint16_t*>(workspace_.of_thread(thread));
    std::uint16_t* to = packed_panel(group, plan, panel);
    const std::int64_t depth = lines_ ? static_cast<std::int64_t>(taps.size()) * channels_ : channels_;
    const auto reorder = [&](const Tap& tap, std::uint16_t* row) {
      for (std::int64_t i = 0; i < lines; ++i)
        for (std::int64_t c = 0; c < channels_; ++c)
          row[i * depth + c] = from[i * order_.result_step + c * order_.channel_step + tap.weight];
    };
    const auto reorder_across = [&](const Tap& tap) {
      for (std::int64_t c = 0; c < channels_; ++c)
        for (std::int64_t i = 0; i < lines; ++i)
          rows[c * kTilePanel + i] = from[i * order_.result_step + c * order_.channel_step + tap.weight];
    };
    const bool across = order_.result_step < order_.channel_step;
    if (lines_) {
      for (std::size_t t = 0; t < taps.size(); ++t) reorder(taps[t], rows + static_cast<std::int64_t>(t) * channels_);
      tiles_.pack_b({rows, lines, depth, depth, 1}, to);
      return;
    }
    if (order_.places == 1 && !taps.empty())
      return tiles_.pack_b({from, lines, channels_, order_.result_step, order_.channel_step}, to);
    for (const Tap& tap : taps) {
      if (across) reorder_across(tap);
      else reorder(tap, rows);
      tiles_.pack_b({rows, lines, depth, across ? 1 : depth, across ? kTilePanel : 1}, to);
      to += quotient_up(channels_, kTileDepth) * kPanelStep;
    }
  }

  void run_task(const Task& task, int thread) const {
    const Plan& plan = plans_[task.grid];
    const TapGrid& grid = grids_[task.grid];
    const Memory at = memory();
    std::byte* const own = workspace_.of_thread(thread);
    auto* const offsets = reinterpret_cast<std::int64_t*>(own + at.offsets);
    auto* const masks = reinterpret_cast<std::uint64_t*>(own + at.masks);
    const std::int64_t count = std::min(plan.positions - task.first, panels_of_task_ * kTilePanel);
    const std::int64_t position_panels = quotient_up(count, kTilePanel), result_panels = task.last_panel - task.panel;
    const std::uint16_t* source = input_ + task.group * channels_;
    if (lines_) {
      auto* const rows = reinterpret_cast<std::uint16_t*>(own + at.rows);
      gather_rows(grid, shape_, source_, input_, task.first, count, rows);
      source = rows;
      for (std::int64_t i = 0; i < position_panels * kTilePanel; ++i)
        offsets[i] = i * plan.lines.taps() * channels_, masks[i] = i < count ? 1 : 0;
    } else {
      plan.lines.find(task.first, count, position_panels * kTilePanel, offsets, masks);
    }
    auto* const gathered = reinterpret_cast<std::uint16_t*>(own + at.gathered);
    auto* const moved = reinterpret_cast<std::int64_t*>(own + at.sources);
    const bool waits = plan.steps > kSlabSteps;
    TileBlock block{.a = gathered,
                    .a_row = kTileDepth * kElementBytes,
                    .a_step = kPanelStep * kElementBytes,
                    .a_second = kTileLines * kTileDepth * kElementBytes,
                    .b_panel = plan.steps * kPanelStep * kElementBytes,
                    .panels = result_panels,
                    .columns = std::min(results_ - task.panel * kTilePanel, result_panels * kTilePanel)};
    std::uint16_t* const target = target_ + task.group * results_ + task.panel * kTilePanel;
    const bool lies = grid.step == ConvolutionShape::Triple{1, 1, 1};
    auto* const results = reinterpret_cast<std::uint16_t*>(own + at.results);
    for (std::int64_t step = 0, steps; step == 0 || step < plan.steps; step += steps) {
      steps = std::min(kSlabSteps, plan.steps - step);
      const bool ends = step + steps == plan.steps;
      block.steps = steps, block.add = step > 0;
      block.b = packed_panel(task.group, plan, task.panel) + step * kPanelStep;
      for (std::int64_t panel = 0; panel < position_panels; ++panel) {
        gather({source, offsets + panel * kTilePanel, masks + panel * kTilePanel}, plan.lines, step, steps, moved, gathered);
        block.rows = std::min(count - panel * kTilePanel, kTilePanel);
        if (waits) block.sums = reinterpret_cast<float*>(own + at.sums) + panel * panels_ * kPanelSums;
        const std::int64_t first = task.first + panel * kTilePanel;
        block.c = !ends ? nullptr : lies ? target + first * result_.channels : results;
        block.c_row = lies ? result_.channels : block.columns;
        tiles_.multiply(block);
        if (ends && !lies) write_apart(grid, first, block, results, target);
      }
      if (steps == 0) break;
    }
  }

  /// Steps [step, step + steps) of a panel of positions.
  void gather(TileSources sources, const TapLines& lines, std::int64_t step, std::int64_t steps, std::int64_t* moved,
              std::uint16_t* to) const {
    const std::int64_t steps_of_tap = lines_ ? std::max<std::int64_t>(1, step + steps) : quotient_up(channels_, kTileDepth);
    const std::int64_t elements = lines_ ? lines.taps() * channels_ : channels_;
    const std::int64_t* const offsets = sources.offsets;
    sources.offsets = moved;
    for (std::int64_t next = step; next < step + steps;) {
      sources.tap = lines_ ? 0 : next / steps_of_tap;
      const std::int64_t begin = lines_ ? next : next % steps_of_tap;
      const std::int64_t end = std::min(steps_of_tap, begin + step + steps - next);
      const std::int64_t offset = begin * kTileDepth + (lines_ ? 0 : lines.tap_offset(sources.tap));
      for (std::int64_t i = 0; i < kTilePanel; ++i) moved[i] = offsets[i] + offset;
      sources.elements = std::min(elements, end * kTileDepth) - begin * kTileDepth;
      tiles_.gather_a(sources, to);
      to += (end - begin) * kPanelStep;
      next += end - begin;
    }
  }

  /// Results of positions that lie apart.
  void write_apart(const TapGrid& grid, std::int64_t first, const TileBlock& block, const std::uint16_t* results,
                   std::uint16_t* target) const {
    walk_positions(grid.count, first, block.rows, [&](const PositionRun& run) {
      const std::uint16_t* from = results + run.index * block.columns;
      std::uint16_t* to =
          target + result_.offset(run.image, grid.start[0] + run.depth * grid.step[0], grid.start[1] + run.height * grid.step[1],
                                  grid.start[2] + run.width * grid.step[2]);
      for (std::int64_t i = 0; i < run.count; ++i, from += block.columns, to += grid.step[2] * result_.channels)
        std::memcpy(to, from, static_cast<std::size_t>(block.columns * kElementBytes));
    });
  }

  const TileFunctions& tiles_;
  ConvolutionShape shape_;
  std::vector<TapGrid> grids_;
  PositionedChannels source_, result_;
  WeightOrder order_;
  const std::uint16_t *weight_, *input_;
  std::uint16_t* target_;
  std::int64_t channels_, results_, group_weights_, panels_;  // of a group
  bool lines_ = false;
  std::vector<Plan> plans_;  // of each grid
  std::int64_t grid_steps_ = 0, most_steps_ = 0, panels_of_task_ = 1, parts_ = 1;
  std::vector<Task> tasks_;
  Workspace workspace_;
};

}  // namespace

TapLines::TapLines(const TapGrid& grid, const PositionedChannels& source) : grid_(grid), source_(source) {
  for (const Tap& tap : grid.taps) tap_offsets_.push_back(source.offset(0, tap.offset[0], tap.offset[1], tap.offset[2]));
  for (std::size_t d = 0; d < 3; ++d)
    for (std::int64_t i = 0; i < grid.count[d]; ++i) {
      std::uint64_t mask = 0;
      for (std::size_t t = 0; t < grid.taps.size(); ++t) {
        const std::int64_t read = i * grid.scale[d] + grid.taps[t].offset[d];
        if (read >= 0 && read < source.extent[d]) mask |= std::uint64_t{1} << t;
      }
      inside_[d].push_back(mask);
    }
}

void TapLines::find(std::int64_t first, std::int64_t count, std::int64_t padded, std::int64_t* offsets,
                    std::uint64_t* masks) const {
  const auto inside = [&](std::size_t dimension, std::int64_t i) { return inside_[dimension][static_cast<std::size_t>(i)]; };
  walk_positions(grid_.count, first, count, [&](const PositionRun& run) {
    const std::uint64_t mask = inside(0, run.depth) & inside(1, run.height);
    const std::int64_t step = grid_.scale[2] * source_.channels;
    std::int64_t offset =
        source_.offset(run.image, run.depth * grid_.scale[0], run.height * grid_.scale[1], run.width * grid_.scale[2]);
    for (std::int64_t i = 0; i < run.count; ++i, offset += step) {
      offsets[run.index + i] = offset;
      masks[run.index + i] = mask & inside(2, run.width + i);
    }
  });
  std::fill(offsets + count, offsets + padded, 0);
  std::fill(masks + count, masks + padded, 0);
}

bool gathers_lines(const ConvolutionShape& shape, ConvolutionKind kind) {
  return kind != ConvolutionKind::input_gradient && shape.groups == 1 && shape.group_inputs < kFewTileChannels && shape.taps() > 1;
}

std::unique_ptr<LibraryCall> make_tile_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return make_tile_weight_gradient(call, operands);
  return std::make_unique<TileConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
