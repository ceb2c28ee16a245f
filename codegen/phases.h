// What a nest with reductions computes in which pass over its reduced axes, and what a later pass need not compute again.
//
//   t0[i]   = max over j of x[i,j]                phase 0
//   t1[i,j] = exp(x[i,j] - t0)                    phase 1, dear: kept for phase 2 where a row of it is small
//   t2[i]   = sum over j of t1                    phase 1
//   y[i,j]  = t1 / t2                             phase 2
#pragma once

#include "codegen/schedule.h"

namespace gcomp::codegen {

/// Dear terms that several statements of a nest with reductions hold become statements of their own, which a later phase can
/// read instead of computing them again.
void share_dear_terms(FlatNest& nest);
/// Fills in Schedule::phase, per_element and phases.
void find_phases(const FlatNest& nest, Schedule& schedule);
/// Fills in Schedule::keep: dear statements that a later phase needs again, where a row of them is small.
void choose_kept(const FlatNest& nest, std::int64_t row, Schedule& schedule);

}  // namespace gcomp::codegen
