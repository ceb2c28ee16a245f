// Mixed precision, as PyTorch's autocast: each op of a forward graph in f32 computes in the narrow type or in f32.
//
//   state %w: f32[4,3] parameter                     state %w: f32[4,3] parameter
//   %z = matmul %x, %w : f32[5,3]                    %0 = cast %x {to=bf16}    %1 = cast %w {to=bf16}
//   %h = relu %z : f32[5,3]                   ->     %z = matmul %0, %1 : bf16[5,3]
//   %p = softmax %h {axis=1} : f32[5,3]              %h = relu %z : bf16[5,3]
//                                                    %2 = cast %h {to=f32}
//                                                    %p = softmax %2 {axis=1} : f32[5,3]
//
// To be run before differentiation: gradients go back through the casts by their ordinary rule, so that a parameter's arrives in
// f32, and only low where the forward value was. States keep f32: they are the master copies, cast once a step however often they
// are used. Inputs and outputs keep their types. Which op computes in what, and where PyTorch differs: passes/README.md.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace gcomp::passes {

struct AutocastOptions {
  DType low = DType::bf16;  ///< bf16 or f16
  /// As in ir::TargetInfo.
  std::function<bool(const ir::Node& attention, DType half)> half_attention = {};
};

/// True if anything changed. Values of other types than f32 stay what they are.
bool autocast(ir::Graph& graph, const AutocastOptions& options = {});

}  // namespace gcomp::passes
