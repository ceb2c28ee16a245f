// The nodes of a graph while some give way to others: who stands before whom and who reads a value, at the cost of what changes and
// not of the graph.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Until finish(), the graph itself holds its nodes in the order in which they were made, with those that were replaced, and its
/// outputs as they were. Updates stay where they stand.
class ReplaceableNodes {
 public:
  explicit ReplaceableNodes(ir::Graph& graph);

  /// Order follows from comparing; nodes that stand where one stood share the first number.
  using Place = std::pair<std::size_t, std::size_t>;
  Place place(const ir::Node* node) const { return places_.at(node); }
  /// Whether an update stands behind the one and before the other.
  bool has_update_between(const Place& first, const Place& last) const;

  /// Nodes that read the value, each once, in order.
  std::vector<ir::Node*> readers(const ir::Value* value);
  bool is_output(const ir::Value* value) const { return outputs_.count(value) > 0; }

  /// Notes what a node reads that was given other operands.
  void note_operands(ir::Node* node);
  /// `made`, nodes that the graph got since, stand before `node` from now on.
  void insert_before(const ir::Node* node, const std::vector<ir::Node*>& made);
  /// The node is in the graph no more; the operands stay valid until the graph's next remove_dead().
  void remove(const ir::Node* node);
  /// Readers and outputs get the value that stands for theirs.
  void replace_uses(const std::unordered_map<ir::Value*, ir::Value*>& map);

  /// Brings the graph in order.
  void finish();

 private:
  ir::Graph& graph_;
  std::vector<std::vector<ir::Node*>> slots_;  ///< one for each node that there was
  std::vector<std::size_t> updates_;           ///< how many stand in the slots before
  std::unordered_map<const ir::Node*, Place> places_;
  ir::Uses readers_;  ///< in any order; some no longer read the value, some are named twice
  std::unordered_set<const ir::Value*> outputs_;
  std::unordered_map<ir::Value*, ir::Value*> replaced_;
  std::vector<std::unique_ptr<ir::Node>> removed_;
};

}  // namespace gcomp::passes
