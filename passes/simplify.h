// Algebra on the graph: folding, common subexpressions, dead code, and local rules.
#pragma once

#include <functional>
#include <span>

#include "ir/base/error.h"
#include "ir/graph.h"

namespace gcomp::passes {

/// Every rule: those that follow from facts of ops, then those that ops name.
std::span<const ir::SimplifyRule> simplify_rules();

struct SimplifyOptions {
  std::int64_t fold_bytes = 1 << 16;  ///< results larger than this are not folded into constants
  /// Called with each rule that rewrote a node.
  std::function<void(const ir::SimplifyRule&)> observer;
};

/// What depends on no input becomes a constant, so that passes before `simplify` see numbers where an exporter left their formula.
/// True if anything did.
///   %four = full {value=4}   %two = sqrt %four   %y = mul %x, %two      ->      %two = full {value=2}   %y = mul %x, %two
bool fold_constants(ir::Graph& graph, const SimplifyOptions& options = {});

/// States that would be each other's next values: the graph's mistake, which only shows once copies of them are gone.
class ExchangedStates : public UserError {
 public:
  using UserError::UserError;
};

/// Applies every rule, eliminates equal nodes and drops dead ones, until nothing changes. All rules are IEEE-exact. True if
/// anything changed. Throws ExchangedStates.
///   %a = transpose %x {permutation=[1,0]}   %y = matmul %a, %w      ->      %y = matmul %x, %w {transpose_a=true}
bool simplify(ir::Graph& graph, const SimplifyOptions& options = {});

/// Merges nodes of equal op, attributes and operands. True if any were.
bool eliminate_common_subexpressions(ir::Graph& graph);

}  // namespace gcomp::passes
