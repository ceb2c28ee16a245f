// Attention as CUDA kernels that stream keys past queries, or queries past keys, so that no score is ever in memory.
//
//   %y, %top, %sum = attention %q, %k, %v        ->  one launch
//   %dq, %dk, %dv = attention_gradient ...       ->  two launches: one owns queries, one owns keys; no atomics. Three for heads of
//                                                    more than 128 elements on tensor cores, where dk and dv have one each; one of
//                                                    up to 256 keys and heads of up to 64 elements in 16 bits, whose blocks own
//                                                    whole heads (sm_80 and later, no mask, no dropout)
//
// In f16 and bf16 without a mask the launches stand within an AttentionCall, which a library may take instead.
//
// Texts are shared by all layers of one shape. f32 and f64 (and bf16 below sm_80) multiply by FMA, f16 and bf16 on tensor cores;
// from sm_80 on a launch of f32, heads up to 128, has a second kernel that rounds to TF32 and multiplies on tensor cores too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/library_calls.h"
#include "codegen/step_cost.h"
#include "ir/graph.h"
#include "runtime/program.h"

namespace gcomp::codegen::cuda {

/// True for nodes `attention` and `attention_gradient` that the kernels take: heads of up to 256 elements (f64: 128), a mask of
/// bool, of the operands' dtype or of the type they are computed in, nothing empty, positions that can be counted in 31 bits.
bool takes_attention(const ir::Node& node);

/// A kernel and its grid.
struct AttentionKernel {
  std::string text;
  runtime::Grid grid;
};
/// One launch: the node's values in the order of the kernel's parameters, and what it does.
struct AttentionLaunch {
  AttentionKernel kernel;
  std::optional<AttentionKernel> tf32;  ///< rounds f32 operands of products
  std::vector<const ir::Value*> values;
  StepCost cost;
};
/// What a library may compute in place of the launches, which it lacks; nothing where no library knows such a node: other than f16
/// and bf16, with a mask or dropout, or over a batch that no two strides describe. `architecture` as below.
std::optional<runtime::AttentionCall> attention_call(const ir::Node& node, const BufferOf& buffer_of, int architecture);
/// The launches of a node that takes_attention() accepts. `architecture` is that of the target: 90 for sm_90.
std::vector<AttentionLaunch> attention_launches(const ir::Node& node, int architecture);

}  // namespace gcomp::codegen::cuda
