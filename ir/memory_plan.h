// Where every value of a graph lives. plan_memory makes it, code generation and the printer read it.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

enum class MemorySpace : std::uint8_t { arena, state, constant, io };
std::string_view name_of(MemorySpace space);

// What plan_memory relies on, so every code generator keeps it where results lie over operands (alias_of):
//   * a statement of a nest that needs a reduction belongs to a later phase than it; phases come one after another for equal
//     values of the axes that no statement reduces, and those are the only axes over which work is divided;
//   * statements of one phase over the same points are computed in one pass, which at each point reads all that they need
//     before it stores; the compiler is not told that a result and an operand are disjoint (no restrict), unless their elements
//     differ in size, since results lie over operands of the same layout only;
//   * results are stored in the phase of their statement or a later one;
//   * a view whose alias_of is its operand is nothing; any other (a reshape of a state that changes too early) is a copy;
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
};

}  // namespace gcomp::ir
