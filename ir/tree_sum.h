// The order in which the parts of a sum are added, whoever adds them: a balanced binary tree over the parts in their order. With
// three parts it is (a + b) + c, with seven ((a + b) + (c + d)) + ((e + f) + g). Micro-batches, one process or several, and
// collectives agree on it (passes/training/accumulate.h adds as the parts come, by the same tree).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gcomp::ir {

/// Of at least one part; `T` has operator+.
template <class T>
T tree_sum(std::span<const T> parts) {
  if (parts.size() == 1) return parts[0];
  const std::size_t left = std::bit_floor(parts.size() - 1);  // the largest power of two below the size
  const T first = tree_sum(parts.first(left)), rest = tree_sum(parts.subspan(left));
  return first + rest;
}

/// Of a sum over shards that come one after another, how many levels wait for more: bits of the last shard's number.
inline int tree_levels(std::int64_t shards) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(shards - 1))); }

/// Which nodes of the tree the shards of one of several ranks are: `count` neighbours of so many shards each.
struct OwnNodes {
  std::int64_t count = 1, shards = 1;
};
/// `ranks` divide `shards`. One rank has the whole tree, several have nodes of a power of two; where they take turns, what goes on
/// from each is the sum over all ranks, and a rank adds these up by a whole tree too.
inline OwnNodes own_nodes(std::int64_t shards, std::int64_t ranks, bool in_turns = false) {
  const std::int64_t own = shards / ranks;
  if (ranks == 1 || in_turns) return {1, own};
  const std::int64_t node = std::int64_t{1} << std::countr_zero(static_cast<std::uint64_t>(own));
  return {own / node, node};
}

/// How often what waits at a level is added to while a rank's shards come, each node's last one left out.
inline std::int64_t additions_at(int level, const OwnNodes& nodes) {
  const std::int64_t half = std::int64_t{1} << level;  // after shards half - 1, 3 half - 1, ... of a node
  return (nodes.shards - 1 + half) / (2 * half) * nodes.count;
}

}  // namespace gcomp::ir
