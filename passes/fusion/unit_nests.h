// The loop nests of step 1: a node's own loops, and in place of what is inlined the terms that compute it.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "ir/nest/term.h"
#include "passes/fusion/fusion_units.h"

namespace gcomp::passes {

class UnitNests {
 public:
  /// `inlined` says of each value, by truth value, whether its readers compute it; it must outlive this.
  explicit UnitNests(const ir::ValueTable<char>& inlined) : inlined_(inlined) {}
  /// The unit of a node whose results are in memory.
  FusionUnit unit_of(const ir::Node& node);

 private:
  /// The value of an inlined node at `indices`, or a read of a value in memory, in terms of the unit's operands.
  ir::TermPtr value_at(const ir::Value* value, const std::vector<ir::Index>& indices);
  /// A term of the node at `axes` (itself where there are none), its reads replaced by the operands' values.
  ir::TermPtr substitute(const ir::Node& node, const ir::TermPtr& term, const std::vector<ir::Index>& axes);
  int slot_of(const ir::Value* value);

  /// Equal reads of one value share their term.
  struct Memo {
    const ir::Value* value;
    ir::TermPtr probe, result;
  };

  const ir::ValueTable<char>& inlined_;
  std::unordered_map<const ir::Value*, int> slots_;  ///< of the unit's operands
  std::vector<ir::Value*> operands_;
  std::unordered_multimap<std::size_t, Memo> memo_;
};

}  // namespace gcomp::passes
