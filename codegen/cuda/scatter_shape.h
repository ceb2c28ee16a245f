// How the place that a scatter adds to falls into digits: axes of the statement (say, the columns of an embedding) and loaded
// indices (its rows). Where the digits tell every element apart, the axes among them are free: their points never meet.
#pragma once

#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

struct ScatterShape {
  std::vector<int> free;    ///< axes that are digits, in the statement's order
  std::vector<int> serial;  ///< the statement's other axes, in its order
  std::vector<ir::IndexAtom> loaded;
  std::vector<std::int64_t> coefficients;  ///< of `loaded`
  bool exact = false;                      ///< the digits tell all elements apart, and cover them
  bool independent = false;                ///< no loaded index depends on a free axis
};

ScatterShape scatter_shape(const FlatNest& nest, const Store& store);

/// Axes in place of a store's loaded indices: its destinations.
struct Destinations {
  std::vector<int> axes;
  ir::Index place;  ///< the store's, over the axes
};
Destinations add_destinations(FlatNest& nest, const ir::Index& place, const ScatterShape& shape);

/// Bytes that one point of an update reads, and those that a scatter writes.
double bytes_an_update(const FlatNest& nest);
double written_bytes(const FlatNest& nest, const Store& store);

/// Many updates of few destinations become the sum, for each of them, over the updates that go there, which runs in parallel.
/// Leaves other nests alone.
void sum_over_updates(FlatNest& nest);

}  // namespace gcomp::codegen::cuda
