// Stores that fill a result in turns, as the channels of an image do that becomes channels last: each alone would write every third
// element, together they write vectors.
//
//   float r3[12];
//   for (u in 0..4) { r3[u * 3] = ...; r3[u * 3 + 1] = ...; r3[u * 3 + 2] = ...; }
//   gc_store_vectors<4>(p1 + i0 * 12, r3);
#pragma once

#include <vector>

#include "codegen/cuda/vectors.h"

namespace gcomp::codegen::cuda {

/// Takes the stores out of `stores` that fill vectors together; each list is one such, by place.
std::vector<std::vector<const Store*>> take_interleaved(const FlatNest& nest, const Vectors& vectors,
                                                        std::vector<const Store*>& stores);

/// The same of stores side by side where a thread has no vectors.
std::vector<std::vector<const Store*>> take_neighbours(const FlatNest& nest, std::vector<const Store*>& stores);

/// Elements of the widest vectors, of at most 16 bytes, that such a list may be stored in.
int interleaved_width(const FlatNest& nest, const Vectors& vectors, const std::vector<const Store*>& members);

}  // namespace gcomp::codegen::cuda
