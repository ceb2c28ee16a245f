// Vectors: the neighbouring elements along the vector axis that one thread moves in words of up to 16 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

struct Vectors {
  int width = 1;             ///< elements of a vector; 1 for none
  int lane_axis = -1;        ///< the axis within a vector, split off the vector axis
  std::vector<int> reads;    ///< statements that are one read each, aligned and contiguous
  std::vector<bool> stores;  ///< by store: aligned and contiguous
};

/// Splits the vector axis into vectors of at most `most` elements where most of what moves along it is contiguous and aligned, and
/// makes each such read a statement of its own.
Vectors vectorize(FlatNest& nest, int vector_axis, int most = 8);

/// Makes a term a map statement over `axes` and replaces it by that statement wherever it stands; returns its number.
int extract_statement(FlatNest& nest, const ir::TermPtr& term, std::vector<int> axes);

/// Reads that are evaluated wherever their statement is: not behind a guard, nor within an index.
std::vector<ir::TermPtr> unguarded_reads(const ir::TermPtr& term);

/// The axes that the place of a read varies along by the values of statements, as bits: no coefficient of its index tells.
std::uint64_t computed_axes(const FlatNest& nest, const ir::TermPtr& read);

/// The index at position 0 of `axis`.
ir::Index at_origin(const ir::Index& index, int axis);

}  // namespace gcomp::codegen::cuda
