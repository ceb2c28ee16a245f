// Graphs whose kernels the CUDA tests emit: every sample of the op table in several dtypes, and fused patterns.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace gcomp::tests {

struct LabelledGraph {
  std::string label;
  ir::Graph graph;
  double low = -2, high = 2;  ///< of floating-point inputs and states
  int largest = 2;            ///< integers lie in [0, largest], or in [low, high] where it is negative
};

/// Each op on its samples in f64 and, where it accepts them, f32, f16, bf16, i64, i32 and u8; composites expanded and fused, and so
/// are barriers, which fusion takes out.
std::vector<LabelledGraph> op_graphs();

/// Rows, columns, scans, scatters, transposes, windows and updates of sizes that reach every path of the emitter.
std::vector<LabelledGraph> pattern_graphs();

/// Composites expanded, simplified, fused.
void lower_to_kernels(ir::Graph& graph);

}  // namespace gcomp::tests
