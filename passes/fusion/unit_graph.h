// The units of fusion as a graph under fusion: who needs whom, who reads what, and an order that stays topological.
//
// A question of reachability costs what lies near the two units and not what lies between them: it is asked from both ends at
// once, within the order, and a forest of depth-first search over the first units answers yes at once for most pairs far apart
// (fusion makes paths and never removes one).
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "passes/fusion/fusion_units.h"
#include "passes/memory/movable_order.h"

namespace gcomp::passes {

class UnitGraph {
 public:
  /// `units` in topological order; they stay the caller's and are fused in place.
  UnitGraph(std::vector<FusionUnit>& units, const ir::Graph& graph);

  const FusionUnit& unit(int u) const { return units_[static_cast<std::size_t>(u)]; }
  bool alive(int u) const { return nodes_[static_cast<std::size_t>(u)].alive; }
  /// The unit that makes a value; -1 for inputs and states.
  int producer(const ir::Value* value) const { return value ? values_[value].producer : -1; }
  /// Units that read a value, ascending.
  const std::vector<int>& readers(const ir::Value* value) const { return values_[value].readers; }
  /// When the value's producer or a reader of it last changed; 0 for never.
  int changed(const ir::Value* value) const { return values_[value].changed; }
  int changed(int u) const { return nodes_[static_cast<std::size_t>(u)].changed; }
  /// The time of the last change.
  int now() const { return now_; }

  /// In topological order, -1 at the end.
  int first() const { return order_.first(); }
  int next(int u) const { return order_.next(u); }
  bool before(int a, int b) const { return order_.before(a, b); }

  /// Whether `a` reaches `b` through some other unit. One that would take too long to find counts as found.
  bool path_between(int a, int b);
  /// The same, or `b` needs `a` itself.
  bool reaches(int a, int b);

  /// Puts `fused`, which does what both do, in the place of `kept`; `gone` is no more. There is no path between the two.
  /// Results that nobody else reads stay inside.
  void fuse(int gone, int kept, FusionUnit fused);

  /// The units that are left, in topological order that is stable in their numbers.
  std::vector<FusionUnit> take();

 private:
  struct UnitNode {
    bool alive = true;
    int changed = 0;
    int visit = 0, last = 0;                   ///< in the forest: its number, and the greatest number below it
    unsigned seen_ahead = 0, seen_behind = 0;  ///< the search that came by
  };
  struct ValueNode {
    int producer = -1;
    int updated_by = -1;  ///< a state's update
    int changed = 0;
    std::vector<int> readers;
  };

  using Successors = std::vector<std::vector<int>>;

  int updated_by(const ir::Value* state) const { return state ? values_[state].updated_by : -1; }
  UnitNode& node(int u) { return nodes_[static_cast<std::size_t>(u)]; }
  const UnitNode& node(int u) const { return nodes_[static_cast<std::size_t>(u)]; }
  template <class F>
  void for_each_before(int u, const F& visit) const;
  template <class F>
  void for_each_after(int u, const F& visit) const;
  std::size_t count_before(int u) const;
  std::size_t count_after(int u) const;
  Successors successors() const;
  std::vector<int> sorted(const Successors& after) const;
  void number_forest(const Successors& after);
  bool reaches_in_forest(int a, int b) const { return node(a).visit <= node(b).visit && node(b).visit <= node(a).last; }
  void move_together(int gone, int kept);
  void forget_reader(const ir::Value* value, int u);
  void add_reader(const ir::Value* value, int u);

  std::vector<FusionUnit>& units_;
  std::vector<UnitNode> nodes_;
  ir::ValueTable<ValueNode> values_;
  ir::ValueSet outputs_;
  MovableOrder order_;
  unsigned search_ = 0;
  int now_ = 0;
};

}  // namespace gcomp::passes
