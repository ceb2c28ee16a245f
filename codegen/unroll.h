// Short axes written out, where that leaves lanes of neighbours or settles conditions.
//
//   y[i] = sum of x[2 i + k] over k < 3               y[i] = x[2 i] + x[2 i + 1] + x[2 i + 2]           a reduction becomes a map
//   y[i, c] = x[c, i], c < 3                    ->    y[i, 0] = x[0, i], y[i, 1] = x[1, i], ...         lanes along i
//   y[i, p] = p == 0 ? x[i] : 0, p < 2                y[i, 0] = x[i], y[i, 1] = 0                       no condition is left
#pragma once

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// At most so many statements come of it.
inline constexpr std::size_t kMostStatements = 96;

/// Short contiguous axes between the elements of a long one: [..., long, 3].
void unroll_interleaved_axes(FlatNest& nest);
/// All reductions, where together they go over few points, with the short axes that conditions depend on.
void unroll_short_reductions(FlatNest& nest);

}  // namespace gcomp::codegen
