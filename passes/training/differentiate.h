// Reverse-mode differentiation on the graph.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Appends the gradient of the scalar `loss` with respect to each of `with_respect_to` and gives it for each of them; zeros
/// where the loss does not depend on it.
///
/// Composites without a gradient rule of their own are expanded first. Before:
///   %y = matmul %x, %w : f32[8,4]      %loss = reduce_sum %y {axes=[0,1]} : f32[]
/// after, for %w:
///   ... %g = broadcast ... : f32[8,4]  %w_gradient = matmul %x, %g {transpose_a=true} : f32[3,4]
///
/// Throws UserError (exit 4) that lists every node on the way from a wanted value to the loss that has no gradient, each
/// with its op, origin and reason.
std::vector<ir::Value*> differentiate(ir::Graph& graph, ir::Value* loss, const std::vector<ir::Value*>& with_respect_to);

/// Nodes that stand between a wanted value and the loss and have no gradient; empty where `differentiate` would succeed.
struct NotDifferentiable {
  const ir::Node* node = nullptr;
  std::string reason;
};
std::vector<NotDifferentiable> find_not_differentiable(const ir::Graph& graph, const ir::Value* loss,
                                                       const std::vector<ir::Value*>& with_respect_to);

}  // namespace gcomp::passes
