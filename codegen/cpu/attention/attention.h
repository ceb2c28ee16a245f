// Attention as C++ kernels of f32 and bf16 that stream keys past queries, so that scores are never in memory beyond a tile.
//
//   %y, %top, %sum = attention %q, %k, %v        ->  a launch whose tasks own 64 queries of a head
//   %dq, %dk, %dv = attention_gradient ...       ->  a launch whose tasks own a head: five products of each tile of scores
//
// Texts are shared by all layers of one shape.
#pragma once

#include <string>
#include <vector>

#include "codegen/step_cost.h"
#include "ir/graph.h"

namespace gcomp::codegen::cpu {

/// True for nodes `attention` and `attention_gradient` that the kernels take: f32 or bf16, heads of up to 128 elements, a mask of
/// bool, f32 or their type.
bool takes_attention(const ir::Node& node);
/// Whether they were measured to be as fast as the products and kernels that a node expands to, or faster: four heads or more whose
/// padding to multiples of 32 is at most a quarter of what is computed, under a causal mask half.
bool gains_from_streaming(const ir::Node& node);

/// One launch: its kernel's text, its tasks, the node's values in the order of the kernel's pointers, and what it does.
struct AttentionLaunch {
  std::string text;
  std::int64_t tasks = 1;
  std::vector<const ir::Value*> values;
  StepCost cost;
};
/// That of a node that takes_attention() accepts.
AttentionLaunch attention_launch(const ir::Node& node);

}  // namespace gcomp::codegen::cpu
