// Rows that compare their positions with one number each, as a loss compares them with its label. One vector of a row at most has
// that position; all others are computed as if the comparison never held:
//
//   const gc_index n3 = gc_vector_start<8, gc_index>(v2);                            v2: the label
//   for (...) { if (i5 * 8 == n3) { ... (i5 * 8 + u == v2 ? 1 : 0) ... } else { ... } }
#pragma once

#include <optional>

#include "codegen/cuda/vectors.h"

namespace gcomp::codegen::cuda {

struct OneHot {
  ir::TermPtr test;    ///< position == number
  ir::TermPtr number;  ///< a read, once a row
  ir::Index start;     ///< of the positions of a vector
  FlatNest others;     ///< where the test does not hold
};

/// For rows along `axes`, as bits, the lanes' among them.
std::optional<OneHot> find_one_hot(const FlatNest& nest, const Vectors& vectors, std::uint64_t axes);
/// Whether one of the terms asks for it, through map statements.
bool asks(const FlatNest& nest, const OneHot& one_hot, const std::vector<ir::TermPtr>& terms);

}  // namespace gcomp::codegen::cuda
