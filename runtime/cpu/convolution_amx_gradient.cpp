// Gradients of weights by tiles: products of the results' gradient, turned, and the gathered source, summed over positions. These
// are divided into slices by the shape alone, each with a sum of its own; the sums are added in order, and brought into the order
// of the weights.
#include <algorithm>
#include <utility>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_amx.h"
#include "runtime/cpu/convolution_rows.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kTileElement = 2;  // bytes of an element
// Steps whose panels of the gradient stay in the second cache, so many panels of them in all.
constexpr std::int64_t kMostSlab = 16, kFewestSlab = 4, kSlabPanels = 256;
constexpr std::int64_t kMostSlicesOfPositions = 16, kMostSliceBytes = std::int64_t{16} << 20;
// A slice's sum costs, for each weight, as much time as so many multiplications; a tenth of all is given to it.
constexpr std::int64_t kSliceCost = 300;
constexpr std::int64_t kSlabTasksOfThread = 2;
constexpr std::int64_t kRowPanelCost = 2;  // of turning a panel of the gradient, in what gathering one of the source takes

class TileWeightGradient final : public LibraryCall {
 public:
  TileWeightGradient(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : tiles_(*operands.backend.tiles),
        shape_(shape_of(call)),
        grid_(std::move(tap_grids(shape_, call.kind).front())),
        source_{shape_.input, call.input_channels},
        taps_(grid_, source_),
        input_(reinterpret_cast<const std::uint16_t*>(operands.input)),
        gradient_(reinterpret_cast<const std::uint16_t*>(operands.output)),
        weight_(reinterpret_cast<std::uint16_t*>(operands.weight)),
        positions_(shape_.batch * shape_.positions()),
        steps_(quotient_up(positions_, kTileDepth)),
        lines_(gathers_lines(shape_, call.kind)) {
    columns_ = lines_ ? shape_.taps() * shape_.group_inputs : shape_.group_inputs;
    panels_of_tap_ = quotient_up(columns_, kTilePanel);
    column_panels_ = panels_of_tap_ * (lines_ ? 1 : shape_.taps());
    row_panels_ = quotient_up(shape_.group_outputs, kTilePanel);
    slab_ = std::clamp(kSlabPanels / row_panels_, kFewestSlab, kMostSlab);
    slices_ = std::clamp<std::int64_t>(std::min(kMostSlicesOfPositions, kMostSliceBytes / (sums_of_slice() * 4)), 1, steps_);
    while (slices_ > 1 && slices_ * kSliceCost * 10 > positions_) slices_ /= 2;
  }

  WorkspaceSize workspace() const override { return {slices_ * sums_of_slice() * 4, memory().bytes}; }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    const std::int64_t wanted = kSlabTasksOfThread * threads;
    // What the other operand costs is paid in each range.
    divides_rows_ = row_panels_ * kRowPanelCost > column_panels_;
    ranges_ = std::min(divides_rows_ ? row_panels_ : column_panels_, quotient_up(wanted, slices_ * shape_.groups));
  }

  void run(ThreadPool& pool) override {
    pool.run(shape_.groups * slices_ * ranges_, [this](std::int64_t first, std::int64_t last, int thread) {
      tiles_.begin();
      for (; first < last; ++first) sum(first / ranges_ / slices_, first / ranges_ % slices_, first % ranges_, thread);
      tiles_.end();
    });
    pool.run(shape_.groups * row_panels_ * panels_of_tap_, [this](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first)
        write(first / panels_of_tap_ / row_panels_, first / panels_of_tap_ % row_panels_, first % panels_of_tap_);
    });
  }

 private:
  /// Where a task's data lie in a thread's memory, in bytes from its start.
  struct Memory {
    std::int64_t offsets = 0, masks = 0, moved = 0, gradient = 0, gathered = 0, rows = 0, bytes = 0;
  };
  Memory memory() const {
    Memory memory;
    const auto take = [&](std::int64_t bytes) { return std::exchange(memory.bytes, memory.bytes + aligned_size(bytes)); };
    const std::int64_t positions = slab_ * kTileDepth;
    memory.offsets = take(positions * 8);
    memory.masks = take(positions * 8);
    memory.moved = take(positions * 8);
    memory.gradient = take(row_panels_ * slab_ * kPanelStep * kTileElement);
    memory.gathered = take(slab_ * kPanelStep * kTileElement);
    memory.rows = take(lines_ ? positions * columns_ * kTileElement : 0);
    return memory;
  }

  std::int64_t sums_of_slice() const { return shape_.groups * column_panels_ * row_panels_ * kPanelSums; }
  float* sums_at(std::int64_t slice, std::int64_t group, std::int64_t column_panel, std::int64_t row_panel) const {
    return reinterpret_cast<float*>(workspace_.shared) + slice * sums_of_slice() +
           ((group * column_panels_ + column_panel) * row_panels_ + row_panel) * kPanelSums;
  }

  void sum(std::int64_t group, std::int64_t slice, std::int64_t range, int thread) const {
    const std::int64_t first = steps_ * slice / slices_, last = steps_ * (slice + 1) / slices_;
    for (std::int64_t step = first; step < last; step += slab_)
      add_slab(group, slice, range, {step, std::min(slab_, last - step)}, step > first, thread);
  }

  struct Slab {
    std::int64_t step, steps;
  };

  void add_slab(std::int64_t group, std::int64_t slice, std::int64_t range, const Slab& slab, bool add, int thread) const {
    const Memory at = memory();
    std::byte* const own = workspace_.of_thread(thread);
    auto* const offsets = reinterpret_cast<std::int64_t*>(own + at.offsets);
    auto* const masks = reinterpret_cast<std::uint64_t*>(own + at.masks);
    auto* const moved = reinterpret_cast<std::int64_t*>(own + at.moved);
    auto* const gradient = reinterpret_cast<std::uint16_t*>(own + at.gradient);
    auto* const gathered = reinterpret_cast<std::uint16_t*>(own + at.gathered);
    const std::int64_t position = slab.step * kTileDepth, padded = slab.steps * kTileDepth,
                       count = std::min(positions_ - position, padded);
    const std::int64_t outputs = shape_.group_outputs, result = shape_.groups * outputs;
    const std::uint16_t* source = input_ + group * shape_.group_inputs;
    if (lines_) {
      auto* const rows = reinterpret_cast<std::uint16_t*>(own + at.rows);
      gather_rows(grid_, shape_, source_, input_, position, count, rows);
      source = rows;
      for (std::int64_t i = 0; i < padded; ++i) offsets[i] = i * columns_, masks[i] = i < count ? 1 : 0;
    } else {
      taps_.find(position, count, padded, offsets, masks);
    }
    const auto range_of = [&](std::int64_t panels, bool divided) {
      return divided ? std::pair(panels * range / ranges_, panels * (range + 1) / ranges_) : std::pair(std::int64_t{0}, panels);
    };
    const auto [first_row, last_row] = range_of(row_panels_, divides_rows_);
    const auto [first, last] = range_of(column_panels_, !divides_rows_);
    for (std::int64_t panel = first_row; panel < last_row; ++panel)
      tiles_.pack_a({gradient_ + position * result + group * outputs + panel * kTilePanel,
                     std::min(outputs - panel * kTilePanel, kTilePanel), count, 1, result},
                    gradient + panel * slab.steps * kPanelStep);
    for (std::int64_t column = first, moved_tap = -1; column < last; ++column) {
      const std::int64_t tap = column / panels_of_tap_, begin = column % panels_of_tap_ * kTilePanel;
      if (tap != std::exchange(moved_tap, tap))
        for (std::int64_t i = 0; i < padded; ++i) moved[i] = offsets[i] + (lines_ ? 0 : taps_.tap_offset(tap));
      tiles_.gather_b({source + begin, moved, masks, tap, std::min(columns_ - begin, kTilePanel)}, slab.steps, gathered);
      for (std::int64_t panel = first_row; panel < last_row; ++panel)
        tiles_.multiply({.a = gradient + panel * slab.steps * kPanelStep,
                         .a_row = kTileDepth * kTileElement,
                         .a_step = kPanelStep * kTileElement,
                         .a_second = kTileLines * kTileDepth * kTileElement,
                         .b = gathered,
                         .panels = 1,
                         .steps = slab.steps,
                         .sums = sums_at(slice, group, column, panel),
                         .add = add,
                         .rows = std::min(outputs - panel * kTilePanel, kTilePanel),
                         .columns = kTilePanel});
    }
  }

  /// A panel of outputs by one of channels, of all taps.
  void write(std::int64_t group, std::int64_t row_panel, std::int64_t panel) const {
    const std::int64_t taps = shape_.taps(), inputs = shape_.group_inputs, outputs = shape_.group_outputs;
    const std::int64_t rows = std::min(outputs - row_panel * kTilePanel, kTilePanel),
                       columns = std::min(columns_ - panel * kTilePanel, kTilePanel);
    std::uint16_t* const to = weight_ + (group * outputs + row_panel * kTilePanel) * inputs * taps;
    std::uint16_t line[kTilePanel];
    for (std::int64_t tap = 0; tap < (lines_ ? 1 : taps); ++tap) {
      float* const total = sums_at(0, group, tap * panels_of_tap_ + panel, row_panel);
      for (std::int64_t slice = 1; slice < slices_; ++slice) {
        const float* const more = total + slice * sums_of_slice();
        for (std::int64_t i = 0; i < kPanelSums; ++i) total[i] += more[i];
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        tiles_.narrow(total + i * kTilePanel, line, kTilePanel);
        std::uint16_t* const row = to + i * inputs * taps;
        for (std::int64_t j = 0; j < kTilePanel; ++j) {
          if (gathered_column(j) >= columns) continue;
          const std::int64_t column = panel * kTilePanel + gathered_column(j);
          // Of lines, columns are [tap][channel].
          if (lines_) row[column % inputs * taps + column / inputs] = line[j];
          else row[column * taps + tap] = line[j];
        }
      }
    }
  }

  const TileFunctions& tiles_;
  ConvolutionShape shape_;
  TapGrid grid_;
  PositionedChannels source_;
  TapLines taps_;
  const std::uint16_t *input_, *gradient_;
  std::uint16_t* weight_;
  std::int64_t positions_, steps_;
  bool lines_;
  std::int64_t columns_, panels_of_tap_, column_panels_, row_panels_;  // of a group; columns_ of a tap, or of all
  std::int64_t slab_, slices_, ranges_ = 1;
  bool divides_rows_ = false;  // into ranges, not columns
  Workspace workspace_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_tile_weight_gradient(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  return std::make_unique<TileWeightGradient>(call, operands);
}

}  // namespace gcomp::runtime::cpu
