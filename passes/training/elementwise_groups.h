// Which values of a step go together element by element: a parameter, its gradient, its states, and all that is made of them so.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Whether every element is one and the same, by how the value is made: a number, or a scalar that is spread.
bool is_spread(const ir::Value* value);
/// Whether the node is the maximum or minimum over all elements of its operand, which no order of them changes.
bool is_extreme_of_all(const ir::Node& node);

class ElementwiseGroups {
 public:
  /// Of a step's nodes. A group is elementwise where every node that reads or makes one of its values is pointwise, an update, a
  /// sum of squares or an extreme over all elements, and where it has one of `parameters`, of a dimension or more.
  ElementwiseGroups(const ir::Graph& graph, const std::vector<ir::Value*>& parameters);

  /// Whether the value is of an elementwise group; not where it is spread.
  bool contains(const ir::Value* value) const { return value && elementwise_[root(value)]; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t root(const ir::Value* value) const;
  void join(const ir::Value* a, const ir::Value* b);
  void join_node(const ir::Node& node);
  void refuse_uses(const ir::Node& node);

  mutable std::vector<std::size_t> parent_;  // by number of values
  std::vector<char> elementwise_;            // of roots
};

}  // namespace gcomp::passes
