#include "runtime/cpu/amx_operand.h"

#include <algorithm>
#include <utility>

#include "ir/base/integers.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kOperandElement = 2;     // bytes of an element
constexpr std::int64_t kPartSteps = 32;         // of a panel that one thread packs
constexpr std::int64_t kRowBytesOfSets = 2048;  // rows so far apart share few sets of the first cache, and drive each other out

}  // namespace

TileOperand::TileOperand(MatrixStack from, std::int64_t lines, std::int64_t depth, std::int64_t line_stride,
                         std::int64_t step_stride, Role role, const TileFunctions& tiles)
    : from_(std::move(from)),
      lines_(lines),
      depth_(depth),
      line_stride_(line_stride),
      step_stride_(step_stride),
      panels_(quotient_up(lines, kTilePanel)),
      packed_panels_(panels_),
      panel_bytes_(quotient_up(depth, kTileDepth) * kPanelStep * kOperandElement),
      parts_of_panel_(quotient_up(quotient_up(depth, kTileDepth), kPartSteps)),
      role_(role),
      tiles_(tiles) {
  const auto& offsets = from_.offsets;
  matrices_ = static_cast<std::int64_t>(offsets.size());
  // A matrix that repeats is packed once.
  if (std::all_of(offsets.begin(), offsets.end(), [&](std::int64_t offset) { return offset == offsets[0]; }))
    matrices_ = std::min<std::int64_t>(matrices_, 1);
  const bool lies =
      role == Role::a && step_stride == 1 && depth % kTileDepth == 0 && line_stride * kOperandElement % kRowBytesOfSets != 0;
  if (lies) packed_panels_ = lines % kTilePanel == 0 ? 0 : 1;  // the last one, whose zeros no memory has
}

void TileOperand::pack_of(std::int64_t matrix, std::int64_t part, std::byte* copy) const {
  const std::int64_t panel = part / parts_of_panel_, step = part % parts_of_panel_ * kPartSteps,
                     steps = std::min(kPartSteps, quotient_up(depth_, kTileDepth) - step);
  pack_steps(matrix, first_packed() + panel, step, steps, copy + panel * panel_bytes_ + step * kPanelStep * kOperandElement);
}

void TileOperand::pack_steps(std::int64_t matrix, std::int64_t panel, std::int64_t step, std::int64_t steps, std::byte* to) const {
  const std::int64_t line = panel * kTilePanel, k = step * kTileDepth;
  const TileLines lines{static_cast<const std::uint16_t*>(from_.at(matrix).data) + line * line_stride_ + k * step_stride_,
                        std::min(lines_ - line, kTilePanel), std::min(depth_ - k, steps * kTileDepth), line_stride_, step_stride_};
  (role_ == Role::a ? tiles_.pack_a : tiles_.pack_b)(lines, reinterpret_cast<std::uint16_t*>(to));
}

void TileOperand::set_a(TileBlock& block, std::int64_t matrix, std::int64_t panel, std::int64_t step, const std::byte* copy) const {
  if (!lies(panel))
    return set_packed(block, panel, copy + (panel - first_packed()) * panel_bytes_ + step * kPanelStep * kOperandElement);
  block.rows = std::min(lines_ - panel * kTilePanel, kTilePanel);
  block.a = static_cast<const std::uint16_t*>(from_.at(matrix).data) + panel * kTilePanel * line_stride_ + step * kTileDepth;
  block.a_row = line_stride_ * kOperandElement;
  block.a_step = kTileDepth * kOperandElement;
  block.a_second = kTileLines * line_stride_ * kOperandElement;
}

void TileOperand::set_packed(TileBlock& block, std::int64_t panel, const std::byte* slab) const {
  block.rows = std::min(lines_ - panel * kTilePanel, kTilePanel);
  block.a = slab;
  block.a_row = kTileDepth * kOperandElement;
  block.a_step = kPanelStep * kOperandElement;
  block.a_second = block.a_step / 2;
}

void TileOperand::set_b(TileBlock& block, std::int64_t panel, std::int64_t step, const std::byte* copy) const {
  block.b = copy + panel * panel_bytes_ + step * kPanelStep * kOperandElement;
  block.b_panel = panel_bytes_;
}

}  // namespace gcomp::runtime::cpu
