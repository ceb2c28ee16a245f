// Fusion: from single ops to kernels in index notation.
//
// Three steps. (1) Inlining: cheap or single-use maps move into the nests that read them; views always do, so transposes,
// slices and broadcasts cost nothing where a kernel reads them. (2) Loop fusion: nests over the same loop domain become one,
// producer with consumer (a maximum, a sum and a map make a softmax row), and reductions that read the same value or two results of
// one kernel; last, sums of columns join what is done to their rows. (3) Horizontal fusion: updates of many parameters by equal
// formulas become one multi_kernel, and so do the casts of parameters to 16 bits and equal reductions whose results are wanted
// late. Contractions stay as they are: code generation gives them to libraries.
//
//   %s = add %a, %b   %y = relu %s    ->    %y = kernel %a, %b { %y[i,j] = relu((%a[i,j] + %b[i,j])) }
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace gcomp::passes {

struct FuseOptions {
  bool inlining = true;           ///< step 1 beyond views of constants; off: one kernel an op
  bool loop_fusion = true;        ///< step 2
  bool strips = true;             ///< step 2: sums of columns join what is done to their rows, where the target can
  bool horizontal_fusion = true;  ///< step 3
  bool alike = true;              ///< step 3: equal reductions that nobody waits for, where launches are dear
  /// Step 3: one launch makes about so many bytes and stands where the first is read or the last is made, so that what comes early
  /// need not wait for what comes late.
  std::int64_t horizontal_bytes = INT64_MAX;
  int max_operands = 24;  ///< buffers of one kernel
  int max_terms = 400;    ///< of one kernel's formulas: its text, and with it the time that it compiles
  /// Recomputing a value in each of its readers costs less than a trip through memory up to this many units, where an
  /// addition is one, a division two and a transcendental function about six.
  int recompute_cost = 20;
  /// A map over more elements than this is not fused into a nest with fewer parallel points than `min_parallel`.
  std::int64_t serial_elements = 1 << 15;
  std::int64_t min_parallel = 16;
};

/// Needs a graph without composites. True if anything was fused.
bool fuse(ir::Graph& graph, const FuseOptions& options = {});

/// Nodes of a lowered graph that launch something: kernels, library calls, legal composites.
int count_launches(const ir::Graph& graph);

}  // namespace gcomp::passes
