// The matrices of a node, which may be strided views (ir/strided_view.h), and how the rules of an op come to know nothing of it:
// they are given dense types and values, and what they make is read and written through the views.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace gcomp::ir {

inline constexpr std::string_view kOperandViews = "operand_views", kResultViews = "result_views";
/// Of an op whose matrices may share a result: which result holds each, numbered as they first occur. Empty for one each.
inline constexpr std::string_view kResults = "results";

/// One matrix, or a stack of them.
struct Matrix {
  Shape shape;
  std::size_t value = 0;            ///< which operand or result of the node holds it
  std::optional<StridedView> view;  ///< nothing: dense

  StridedView view_or_dense() const { return view ? *view : StridedView::dense(shape); }
};
/// Those that OpDef::matrices counts.
struct Matrices {
  std::vector<Matrix> operands, results;
};
Matrices matrices_of(const Node& node);

/// Whether attributes say that a matrix is a view, or that two share a result.
bool has_views(const Attributes& attributes);
/// What the rules of an op see of the attributes.
Attributes without_views(Attributes attributes);

/// Operand types as the rules of an op see them. Throws UserError where a view does not fit its operand.
std::vector<TensorType> seen_types(const OpDef& op, std::span<const TensorType> operands, const Attributes& attributes);
/// From result types as the rules see them to those of the node. Throws UserError where views do not fill a result.
std::vector<TensorType> stored_types(const OpDef& op, const std::vector<TensorType>& seen, const Attributes& attributes);
/// A nest over seen operands and results as one over those that the node has.
LoopNest through_views(LoopNest nest, std::span<const TensorType> operands, std::span<const TensorType> results,
                       const Attributes& attributes);

/// What a view shows of a value, as a value of its own; the value itself without a view.
Var dense(Builder& b, Var value, const StridedView* view);
/// The transpose of dense(): zeros where the view does not reach.
Var scattered(Builder& b, Var matrix, const StridedView* view, const TensorType& value);
/// The results of a node from what the rules of its op make.
std::vector<Value*> stored(Builder& b, const Node& node, const std::vector<Value*>& made);

}  // namespace gcomp::ir
