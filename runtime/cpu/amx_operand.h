// An operand of a product by tiles (amx.h): read where it lies, or packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/cpu/amx.h"
#include "runtime/cpu/matrix_stack.h"

namespace gcomp::runtime::cpu {

/// Rows of A or columns of B, for each matrix of a stack, in panels of kTilePanel.
class TileOperand {
 public:
  enum class Role : std::uint8_t { a, b };

  /// `line_stride` and `step_stride`: in elements, from a line to the next, and along k.
  TileOperand(MatrixStack from, std::int64_t lines, std::int64_t depth, std::int64_t line_stride, std::int64_t step_stride,
              Role role, const TileFunctions& tiles);

  std::int64_t panels() const { return panels_; }
  /// Whether all whole panels are read where they lie.
  bool lies() const { return packed_panels_ < panels_; }
  /// Of the copies of all matrices, or of one; none of what is read where it lies.
  std::int64_t bytes() const { return matrices_ * matrix_bytes(); }
  std::int64_t matrix_bytes() const { return packed_panels_ * panel_bytes_; }

  /// Parts of the packing of one matrix, which threads share, and of all matrices.
  std::int64_t parts_of_matrix() const { return packed_panels_ * parts_of_panel_; }
  std::int64_t parts() const { return matrices_ * parts_of_matrix(); }
  /// Packs a part of a matrix to where its copy begins; part `part` of all of them to `copies`.
  void pack_of(std::int64_t matrix, std::int64_t part, std::byte* copy) const;
  void pack(std::int64_t part, std::byte* copies) const {
    const std::int64_t matrix = part / parts_of_matrix();
    pack_of(matrix, part % parts_of_matrix(), copies + matrix * matrix_bytes());
  }

  /// Packs steps [step, step + steps) of a panel of a matrix, one that is not read where it lies.
  void pack_steps(std::int64_t matrix, std::int64_t panel, std::int64_t step, std::int64_t steps, std::byte* to) const;

  /// Where the copy of a matrix begins among all.
  const std::byte* copy_of(std::int64_t matrix, const std::byte* copies) const {
    return copies + (matrices_ == 1 ? 0 : matrix * matrix_bytes());
  }
  /// Whether a panel of A has no copy.
  bool lies(std::int64_t panel) const { return panel < first_packed(); }
  /// Sets what a block reads: of A a panel, of B those from one on, from a step on. `copy` is that of the matrix.
  void set_a(TileBlock& block, std::int64_t matrix, std::int64_t panel, std::int64_t step, const std::byte* copy) const;
  /// The same where steps of the panel are packed at `slab`.
  void set_packed(TileBlock& block, std::int64_t panel, const std::byte* slab) const;
  void set_b(TileBlock& block, std::int64_t panel, std::int64_t step, const std::byte* copy) const;

 private:
  std::int64_t first_packed() const { return panels_ - packed_panels_; }

  MatrixStack from_;
  std::int64_t lines_, depth_, line_stride_, step_stride_, matrices_ = 0;
  std::int64_t panels_, packed_panels_, panel_bytes_, parts_of_panel_;
  Role role_;
  const TileFunctions& tiles_;
};

}  // namespace gcomp::runtime::cpu
