// Attention with its gradients as graphs that keep the nodes whole: shapes that reach every edge of the kernels' tiles.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "tests/codegen/cuda_graphs.h"

namespace gcomp::tests {

/// One attention and its gradients.
struct AttentionCase {
  std::string label;
  Shape batch;
  std::int64_t queries = 1, keys = 1, width = 1, value_width = 1;
  Shape mask = {};                     ///< empty for none; dimensions as `attention` wants them
  bool boolean = false, wide = false;  ///< the mask's dtype: bool, or that of the rows instead of that of the operands
  ir::Attributes attributes = {};
};
std::vector<AttentionCase> attention_cases();

/// Results y, top, sum, dq, dk, dv of each case are outputs, their names beginning with its label.
ir::Graph attention_graph(DType dtype, const std::vector<AttentionCase>& cases);

/// All cases in each float dtype, lowered, with attention and its gradient whole.
std::vector<LabelledGraph> attention_graphs();

/// Lowered for a CUDA target.
void lower_whole(ir::Graph& graph);

}  // namespace gcomp::tests
