// Which values of a step go together: a parameter, its gradient, its states, and all that is made of them and of nothing of another
// parameter's.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Whether every element is one and the same, by how the value is made: a number, or a scalar that is spread.
bool is_spread(const ir::Value* value);
/// Whether the node is the maximum or minimum over all elements of its operand, which no order of them changes.
bool is_extreme_of_all(const ir::Node& node);

/// How several ranks can share what is done with a group.
enum class Division : std::uint8_t {
  none,      ///< each does all of it
  elements,  ///< all of it goes element by element, but for extremes and sums of squares: each has some elements of everything
  owner,     ///< one of them does all, on the whole parameter and gradient, and has the states
};

class UpdateGroups {
 public:
  /// Of a step's nodes. A group that can be divided has one of `parameters`, of a dimension or more. What is made of several
  /// groups' sums of squares and extremes, of scalar states and of inputs is in none.
  UpdateGroups(const ir::Graph& graph, const std::vector<ir::Value*>& parameters);

  /// A number for each group; kNone of values that are in none.
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t group_of(const ir::Value* value) const;
  Division division_of(const ir::Value* value) const;

  /// Whether a part of the value can be computed of parts of what it is made of: in a group that is divided by elements all values,
  /// in one with an owner the parameter, its gradient and what is made of these two element by element. Not where it is spread.
  bool is_in_parts(const ir::Value* value) const { return value && in_parts_.at(value->number); }

 private:
  struct Group {
    int parameters = 0;
    Division division = Division::elements;
  };

  std::size_t root(std::size_t number) const;
  void join(std::size_t a, std::size_t b);
  bool is_grouped(const ir::Value* value) const { return grouped_.at(value->number); }
  void find_groups(const ir::Graph& graph);
  void find_parts(const ir::Graph& graph);
  void divide(const ir::Node& node);
  void refuse(const ir::Value* value);
  Group& of(const ir::Value* value) { return groups_[root(value->number)]; }

  mutable std::vector<std::size_t> parent_;  // by number of values
  std::vector<char> grouped_, in_parts_;     // likewise
  std::vector<Group> groups_;                // of roots
};

}  // namespace gcomp::passes
