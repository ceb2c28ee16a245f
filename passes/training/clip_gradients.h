// Clipping of gradients, as torch.nn.utils has it: of their norm over all trained parameters together, or of each element.
//
//   %sums = square_sums %a_gradient, %b_gradient, ...         one launch for all, where the target has it
//   %norm = sqrt (reduce_sum %sums)
//   %g    = mul %a_gradient, min(1, max_norm / (%norm + 1e-6))    for each gradient
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// At most one of them.
struct GradientClipping {
  std::optional<double> norm = {};   ///< the most that the norm of all gradients may be
  std::optional<double> value = {};  ///< the most that an element may be, either way

  bool empty() const { return !norm && !value; }
};

/// The 2-norm of all gradients together, in f64: f64[]. Of f32, it is finite exactly where all elements are.
ir::Value* gradient_norm(ir::Graph& graph, const std::vector<ir::Value*>& gradients);

/// The clipped gradients, of the same types. `norm` is gradient_norm() of them, null where only values are clipped.
std::vector<ir::Value*> clip_gradients(ir::Graph& graph, const GradientClipping& clipping, const std::vector<ir::Value*>& gradients,
                                       ir::Value* norm);

}  // namespace gcomp::passes
