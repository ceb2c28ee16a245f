// Attention with its gradients as graphs that keep the nodes: shapes that reach every edge of the kernels' tiles.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/target_info.h"
#include "tests/codegen/cuda_graphs.h"

namespace gcomp::tests {

/// How the matrices of a case lie in the graph's inputs, with batch [b, h] and s queries.
enum class AttentionLayout : std::uint8_t {
  matrices,        ///< each in an input of its own, as attention wants it
  packed,          ///< [b, s, q of all heads, k of all heads, v of all heads] in one input, as GPT-2 has it
  separate,        ///< [b, s, h * d] in an input each, as BERT has it
  sequence_first,  ///< [s, b, 3 * h * d] in one input, as torchvision's ViT has it
  cross,           ///< q apart, [b, t, h * d + h * e] for k and v
  shared,          ///< k and v of one head for all
};

/// One attention and its gradients.
struct AttentionCase {
  std::string label;
  Shape batch;
  std::int64_t queries = 1, keys = 1, width = 1, value_width = 1;
  Shape mask = {};                     ///< empty for none; dimensions as `attention` wants them
  bool boolean = false, wide = false;  ///< the mask's dtype: bool, or that of the rows instead of that of the operands
  ir::Attributes attributes = {};
  AttentionLayout layout = AttentionLayout::matrices;
};
std::vector<AttentionCase> attention_cases();
/// Those of few keys, as gradients in 16 bits have a kernel of their own for: each number of warps, tiles that end within, and with
/// `outruns_library` heads enough that it computes even where a library is at hand.
std::vector<AttentionCase> short_attention_cases();
AttentionCase outruns_library();

/// Results y (in the order of its layout), top, sum of each case and the gradients of its inputs are outputs, their names beginning
/// with its label.
ir::Graph attention_graph(DType dtype, const std::vector<AttentionCase>& cases);

/// All cases in each float dtype, those of few keys in 16 bits, lowered, with attention and its gradient as nodes.
std::vector<LabelledGraph> attention_graphs();

/// Lowered for a target, a CUDA one where none is said.
void lower_unexpanded(ir::Graph& graph, const ir::TargetInfo& info);
void lower_unexpanded(ir::Graph& graph);

}  // namespace gcomp::tests
