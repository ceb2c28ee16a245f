// The order in which the parts of a sum are added, whoever adds them: a balanced binary tree over the parts in their order. With
// three parts it is (a + b) + c, with seven ((a + b) + (c + d)) + ((e + f) + g). Micro-batches, one process or several, and
// collectives agree on it (passes/training/accumulate.h adds as the parts come, by the same tree).
#pragma once

#include <bit>
#include <cstddef>
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

}  // namespace gcomp::ir
