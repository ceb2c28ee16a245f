// The bias gradient becomes part of the weight gradient.
//
// Both read the gradient of a layer's result: the weight gradient is a product over its rows, the bias gradient their sum. Where
// cuBLASLt adds the rows up on its way through the product (ir/product.h), the two become one node, which saves a trip through
// memory and, as long sums are cut in two, two launches.
//
//   %db = reduce_sum %dy {axes=[0,1]} : f32[6]               ->     %dw, %db = product %x, %rows : f32[4,6], f32[6] {
//   %dw = matmul %x, %rows {transpose_a=true} : f32[4,6]              ...
//                                                                     t1[j]: f32 = reduce_sum[k] %rows[k,j]
//                                                                     ...
//   with %dy : f32[2,4,6] and %rows its reshape to f32[8,6]         }
//
// The node stands where the first of the two stood. Not fused: f64, sums over fewer axes or of a cast (as in mixed precision where
// the sum is in f32), batches of products, and products whose other operand is not there yet, as where it depends on the sum.
// Nothing is lost but the cut where the library has no such algorithm: the plain product is then followed by a kernel that sums.
#pragma once

#include "ir/target_info.h"

namespace gcomp::passes {

/// For targets whose products take epilogues. Needs a graph before split_reductions. True if anything was fused.
bool fuse_bias_gradients(ir::Graph& graph, const ir::TargetInfo& target);

}  // namespace gcomp::passes
