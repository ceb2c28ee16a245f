// Where the matrices of `attention` and of its gradient lie: each dense in a value of its own, or as a strided view of a value that
// may hold more. Views are attributes of the node, `q_view` to `dv_view`: an offset, then a stride for each dimension of the
// matrix, in elements of the value counted in row-major order, so that reshapes of the value change nothing.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

/// Element [i, j, ...] of a matrix is element offset + i * strides[0] + j * strides[1] + ... of a value.
struct StridedView {
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;

  std::vector<std::int64_t> as_attribute() const;
};

/// One of q, k, v, y and their gradients.
struct AttentionMatrix {
  std::string_view view_name;       ///< the attribute that holds the view
  Shape shape;                      ///< [batch..., rows, columns]
  std::size_t value = 0;            ///< which operand or result of the node holds it
  std::optional<StridedView> view;  ///< nothing: dense, in row-major order

  StridedView view_or_dense() const;
  /// Of each element, its position in the value: i64 of the matrix' shape.
  Tensor positions() const;
};

/// The matrices of one node: q, k, v and, of a gradient, dy; y, or dq, dk and dv.
struct AttentionMatrices {
  std::vector<AttentionMatrix> operands, results;
  Shape scores;  ///< [batch..., queries, keys]
};
/// From types and attributes, with their defaults, that inference has found sound. Without `sizes` the matrices q, k and v are
/// dense.
AttentionMatrices attention_matrices(std::span<const TensorType> operands, const Attributes& attributes);
AttentionMatrices attention_gradient_matrices(std::span<const TensorType> operands, const Attributes& attributes);
/// Of a node of either op.
AttentionMatrices attention_matrices_of(const Node& node);

/// `count` runs of `length` elements, `apart` from one to the next, in which a view goes through a value.
struct ElementRuns {
  std::int64_t offset = 0, count = 1, length = 1, apart = 0;
};
/// Nothing where the view is none of such runs, or meets an element twice.
std::optional<ElementRuns> runs_of(const Shape& shape, const StridedView& view);
/// Whether views of matrices go through each of a value's elements once: runs of all side by side, which as often follow.
bool fill_once(std::span<const AttentionMatrix> matrices, std::int64_t elements);
/// The dimensions of a matrix from the largest stride to the smallest.
std::vector<std::int64_t> dimensions_by_stride(const Shape& shape, const StridedView& view);

}  // namespace gcomp::ir
