// Where every value of a graph lives. plan_memory makes it, code generation and the printer read it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

enum class MemorySpace : std::uint8_t { arena, state, constant, io };

// What plan_memory relies on, so every code generator keeps it where results lie over operands (alias_of):
//   * at each point of a loop, all reads of all statements computed there come before its stores, and the compiler is not told
//     that a result and an operand of one kernel are disjoint (no restrict);
//   * a statement that needs a reduction runs after that reduction has ended for the same values of the axes that no
//     statement reduces, and no earlier statement is computed again from operands after its results were stored;
//   * a view without alias_of (a reshape whose operand is overwritten too early) is a copy;
//   * an update whose value has the place of its state is nothing, any other is a copy.

/// A value's place: bytes from the start of its space, a multiple of 64.
struct Placement {
  MemorySpace space = MemorySpace::arena;
  std::int64_t offset = 0;
  /// The value whose memory this one shares: a reshape of it, a result written in place over a dying operand, or the state
  /// that an update writes. Null where the value has its own.
  const Value* alias_of = nullptr;
};

struct MemoryPlan {
  std::unordered_map<const Value*, Placement> placements;
  std::int64_t arena_bytes = 0, state_bytes = 0, constant_bytes = 0, io_bytes = 0;
  /// Largest sum of live arena bytes over the nodes in this order: no arena can be smaller.
  std::int64_t lower_bound = 0;
  std::int64_t workspace_bytes = 0;  ///< of library calls, within the arena
};

}  // namespace gcomp::ir
