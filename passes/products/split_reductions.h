// Long reductions to few elements run in two steps, in parallel and in a fixed order.
//
//   %s = reduce_sum %x {axes=[0]} : f32[10]   with %x f32[65536,10]
//   %p = reduce_sum (reshape %x: f32[16,4096,10]) {axes=[1]}   %s = reduce_sum %p {axes=[0]}
//
// Cut is the axis with the most parts; where every axis has far too few, a run of neighbouring ones.
#pragma once

#include <cstdint>

#include "ir/target_info.h"

namespace gcomp::passes {

struct SplitOptions {
  std::int64_t min_elements = 1 << 17;  ///< of the operand
  std::int64_t enough_parallel = 64;    ///< kept elements (blocks of 64 where they lie side by side) that need no split
  std::int64_t parts = 16;
  /// From this many elements to one on, the target's `parallel_sums` is what is enough: no row kernel would keep so many.
  std::int64_t long_reduction = 1 << 15;
  std::int64_t strip_rows = 16;                                   ///< at least so many rows make a strip
  std::int64_t strip_columns = 32, most_strip_columns = 1 << 13;  ///< of a strip
};
/// A sum over rows that are themselves reduced somewhere is split into the target's `row_strips`, so that one kernel can do both
/// (passes/fusion/fuse_strips.cpp). Of the others more parts are made until kept elements times parts, counted as above, are
/// `parallel_sums`. Needs a graph of primitive ops. True if anything was cut.
bool split_reductions(ir::Graph& graph, const ir::TargetInfo& target = {}, const SplitOptions& options = {});

}  // namespace gcomp::passes
