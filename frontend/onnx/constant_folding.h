// What depends on no input, evaluated at import. The limits are sizes, not operators: a constant above them stays in the graph as
// the ops that make it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace gcomp::frontend {

/// Of one folded tensor.
inline constexpr std::int64_t kMostFoldedBytes = std::int64_t{64} << 20;
/// What one import may still fold. Large constants are many loop points, and folding them must not take longer than compiling.
struct FoldBudget {
  std::int64_t bytes = std::int64_t{1} << 30;
  std::int64_t points = std::int64_t{1} << 26;  ///< evaluations of a loop body
};

/// Values of one growing graph that depend on no input, state or random number. The graph may only be appended to.
class ConstantFolder {
 public:
  ConstantFolder(const ir::Graph& graph, FoldBudget& budget) : graph_(graph), budget_(budget) {}

  /// The value, computed once; null where it depends on something, or is above a limit. Throws UserError as ir::evaluate() does.
  std::shared_ptr<const Tensor> value_of(const ir::Value* value);

 private:
  bool is_constant(const ir::Value* value);
  /// Nodes that have to run for `value`, in order; nothing where one of them was refused.
  std::optional<std::vector<const ir::Node*>> needed_for(const ir::Value* value) const;
  std::shared_ptr<const Tensor> evaluate(const std::vector<const ir::Node*>& needed, const ir::Value* value) const;

  const ir::Graph& graph_;
  FoldBudget& budget_;
  std::size_t classified_ = 0;                                 ///< nodes
  std::unordered_map<const ir::Node*, std::size_t> constant_;  ///< nodes without dependence, to their place in the graph
  std::unordered_map<const ir::Value*, std::shared_ptr<const Tensor>> known_;
  std::unordered_set<const ir::Node*> refused_;  ///< above a limit
};

}  // namespace gcomp::frontend
