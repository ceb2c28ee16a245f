// Matrices that lie in larger values. A node that takes matrices reads each of them dense, in row-major order, or as a strided view
// of its operand, and writes its results so too: `operand_views` and `result_views` list the views of the first operands and
// results. Elements of a value count in row-major order, so that reshapes of it change nothing. A value that views write has one
// dimension.
//
//   %c = matmul %x, %w {operand_views=[(2,4,8,16):(512,16,64,1)+32, dense]}
//
// Text is as in CuTe: shape, strides, and the offset where it is not 0.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/base/shape.h"
#include "ir/base/tensor.h"
#include "ir/nest/index.h"

namespace gcomp::ir {

/// Element [i, j, ...] of an array of `shape` is element offset + i * strides[0] + j * strides[1] + ... of a value.
struct StridedView {
  Shape shape;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;

  bool operator==(const StridedView&) const = default;

  static StridedView dense(Shape shape);
  Index position(const std::vector<Index>& at) const;
  /// Of each element, its position in the value: i64 of the shape.
  Tensor positions() const;
};
using gcomp::to_string;
/// "(2,4,8):(32,1,4)+16"
std::string to_string(const StridedView& view);

/// One for each matrix; nothing where it is dense, as are those for which there is none.
using Views = std::vector<std::optional<StridedView>>;
/// The view of a matrix; null where it is dense.
const StridedView* view_at(const Views& views, std::size_t matrix);
/// What is wrong with a view of a value of so many elements, as the end of a sentence; "" for nothing.
std::string find_violation(const StridedView& view, std::int64_t elements);

/// `count` runs of `length` elements, `apart` from one to the next, in which a view goes through a value.
struct ElementRuns {
  std::int64_t offset = 0, count = 1, length = 1, apart = 0;
};
/// Nothing where the view is none of such runs, or meets an element twice.
std::optional<ElementRuns> runs_of(const StridedView& view);
/// Whether views go through each of a value's elements once: runs of all side by side, which as often follow.
bool fill_once(std::span<const StridedView> views, std::int64_t elements);
/// The dimensions of a view from the largest stride to the smallest.
std::vector<std::int64_t> dimensions_by_stride(const StridedView& view);

}  // namespace gcomp::ir
