// What is done to each element of a matrix product becomes part of the product.
//
// A matmul and the one kernel that reads its result element by element become a `product` (ir/product.h), so that whoever computes
// it can do both in one trip through memory. Other readers keep what they read, which becomes one more result; where they read the
// sum with its bias alone and the target computes that beside the rest (GELU and its operand), that is what is kept. A kernel that
// also reduces its element-wise result, as the backward pass of an activation does for the bias, is parted from it where the target
// computes the element-wise part.
//
//   %s = matmul %x, %w : f32[8,4]                            %y = product %x, %w, %b : f32[8,4] {
//   %y = kernel %s, %b : f32[8,4] {                            axes i:8, j:4, k:16
//     axes i:8, j:4                                    ->      t0[i,j]: f32 = reduce_sum[k] (%x[i,k] * %w[k,j])
//     t0[i,j]: f32 = relu((%s[i,j] + %b[j]))                   t1[i,j]: f32 = relu((t0 + %b[j]))
//     %y[i,j] = t0                                             %y[i,j] = t1
//   }                                                        }
//
// Not fused: kernels that transpose, reduce otherwise or look up indices, and whatever would make a cycle. Nothing is lost where
// the target computes no such epilogue: the plain product and the kernel are then launched one after the other, as before.
#pragma once

#include "ir/target_info.h"

namespace gcomp::passes {

struct EpilogueOptions {
  int max_operands = 8;  ///< that an epilogue reads
  int max_cost = 96;     ///< of an epilogue's element (`ir::scalar_cost`): its registers stand beside the product's
};

/// Needs a fused graph; nothing is done for a target whose products take no epilogues. True if anything was fused.
bool fuse_epilogues(ir::Graph& graph, const ir::TargetInfo& target, const EpilogueOptions& options = {});

}  // namespace gcomp::passes
