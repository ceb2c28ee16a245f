// Matrices followed through views in index notation: of each element, where it lies in a value.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/strided_view.h"

namespace gcomp::passes {

/// Each element of a matrix, by the axes of its shape, in a value.
struct Located {
  ir::Value* value = nullptr;
  std::vector<ir::Index> at;
};

/// The matrix in its value; nothing where its elements have no stride for each axis, or where a step goes backwards.
std::optional<ir::StridedView> view_of(const Located& located, const Shape& matrix);
/// What a node of kind view shows, in its operand; nothing where it is not one element of one operand.
std::optional<Located> shown_by(const ir::Node& node, const std::vector<ir::Index>& at);

Located through_reshape(const Located& from, ir::Value* to);
Located through_transpose(const Located& from, const ir::Node& transpose);

}  // namespace gcomp::passes
