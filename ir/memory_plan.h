// Where every value of a graph lives. plan_memory makes it, code generation and the printer read it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

enum class MemorySpace : std::uint8_t { arena, state, constant, io };

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
