// Fusion: from single ops to kernels in index notation.
//
// Three steps. (1) Inlining: cheap or single-use maps move into the nests that read them; views always do, so transposes,
// slices and broadcasts cost nothing where a kernel reads them. (2) Merging: nests over the same loop domain become one,
// producer with consumer (a maximum, a sum and a map make a softmax row), and reductions that read the same value.
// (3) Updates of many parameters by equal formulas become one multi_kernel, and so do the casts of parameters to 16 bits.
// Contractions stay as they are: code generation gives them to libraries.
//
//   %s = add %a, %b   %y = relu %s    ->    %y = kernel %a, %b { %y[i,j] = relu((%a[i,j] + %b[i,j])) }
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace gcomp::passes {

struct FuseOptions {
  bool inlining = true;      ///< step 1 beyond views of constants; off: one kernel an op
  bool merging = true;       ///< step 2
  bool multi_update = true;  ///< step 3
  int max_operands = 24;     ///< buffers of one kernel
  /// Recomputing a value in each of its readers costs less than a trip through memory up to this many units, where an
  /// addition is one, a division two and a transcendental function about six.
  int recompute_cost = 20;
  /// A map over more elements than this is not merged into a nest with fewer parallel points than `min_parallel`.
  std::int64_t serial_elements = 1 << 15;
  std::int64_t min_parallel = 16;
};

/// Needs a graph without composites. True if anything was fused.
bool fuse(ir::Graph& graph, const FuseOptions& options = {});

/// Splits a reduction to few elements over many into two, so that it runs in parallel in a fixed order:
///   %s = reduce_sum %x {axes=[0]} : f32[10]   with %x f32[65536,10]
///   %p = reduce_sum (reshape %x: f32[16,4096,10]) {axes=[1]}   %s = reduce_sum %p {axes=[0]}
struct SplitOptions {
  std::int64_t min_elements = 1 << 17;  ///< of the operand
  std::int64_t enough_parallel = 64;    ///< kept elements (for a kept last axis: blocks of 64 elements) that need no split
  std::int64_t parts = 16;
  /// From this many elements to one on, `wanted_parallel` is what is enough: no row kernel would keep so many.
  std::int64_t long_reduction = 1 << 15;
  /// More parts until kept elements times parts, counted as above, are as many: what the target runs at once.
  std::int64_t wanted_parallel = 0;
};
bool split_reductions(ir::Graph& graph, const SplitOptions& options = {});

/// Nodes of a lowered graph that launch something: kernels, library calls, composites taken whole.
int count_launches(const ir::Graph& graph);

}  // namespace gcomp::passes
