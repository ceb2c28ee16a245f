// Which memory a node's results may share with its operands: what memory planning knows of one node alone.
#pragma once

#include <algorithm>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Result `result` may be written over operand `operand` as far as the node itself is concerned.
struct InPlacePair {
  int result = 0, operand = 0;

  auto operator<=>(const InPlacePair&) const = default;
};

struct Reuse {
  bool alias = false;                 ///< the result is the operand's memory under another shape: nothing is computed
  std::vector<InPlacePair> in_place;  ///< ascending

  bool may_overwrite(int operand, int result) const {
    return std::binary_search(in_place.begin(), in_place.end(), InPlacePair{result, operand});
  }
};

/// A view that keeps every element where it is is an alias. A pointwise node may write over any operand of its element
/// size. A kernel may write a result over an operand where, with L the position at which the result is stored:
///   * the store covers the result, each element once, and its statement varies over every axis that no statement reduces,
///     so that one point of those axes owns the element;
///   * every read of the operand is at exactly L, so that no point reads what another one wrote;
///   * no statement that needs the operand, itself or through the maps it uses, runs after the store: it belongs to an
///     earlier phase, or to the same one over the same points, where one pass reads before it stores (ir/memory_plan.h).
/// Contractions, products with an epilogue, reductions and all other nodes never work in place: where the sums of a product are
/// stored before its epilogue reads its operands, they stand in a result's memory.
Reuse reuse_of(const ir::Node& node);

using ReuseTable = ir::NodeTable<Reuse>;
ReuseTable reuse_of(const ir::Graph& graph);

}  // namespace gcomp::passes
