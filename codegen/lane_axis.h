// Which axis of a nest becomes the lanes of a vector: accesses of neighbouring lanes should lie side by side.
//
//   y[i, j] = x[i, j] + b[j]         j: three contiguous accesses                 lanes along j
//   y[i, j] = x[j, i]                i: the read is contiguous; j: the store is   lanes along j, since stores count twice
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// Axes of the nest that any statement uses, ascending.
std::vector<int> used_axes(const FlatNest& nest);
/// The longest step of any store along the axis, in elements.
std::int64_t store_stride(const FlatNest& nest, int axis);
/// From the longest step of the stores down.
void sort_by_stride(const FlatNest& nest, std::vector<int>& axes);

/// One access to memory and how often it happens: once a point of the kept axes, or for each element.
struct Access {
  ir::Index index;
  bool store = false, per_element = false;
};

/// Every place that is read or stored to, once. `reduced`: axes, as bits.
std::vector<Access> accesses_of(const FlatNest& nest, std::uint64_t reduced);

/// The candidate that serves best, the last of equals; -1 where there is none.
int choose_vector_axis(const FlatNest& nest, const std::vector<Access>& accesses, const std::vector<int>& candidates);
/// Whether some axis puts most accesses of neighbouring lanes side by side.
bool has_lanes(const FlatNest& nest);

}  // namespace gcomp::codegen
