// Matrix products with an epilogue: what a node of ops::kProduct means.
//
// The nest of a product over a result of shape [batch..., m, n] has an axis for each dimension of the shape and a last one for k.
// Statement 0 is the sum of products that matmul of operands 0 and 1 is, kept in the compute type; every other statement is a map
// over [batch..., m, n] that reads it, and each result is stored at its own point:
//
//   %y = product %a, %b, %bias : f32[8,4] {
//     axes i:8, j:4, k:16
//     t0[i,j]: f32 = reduce_sum[k] (%a[i,k] * %b[k,j])
//     t1[i,j]: f32 = relu((t0 + %bias[j]))
//     %y[i,j] = t1
//   }
//
// A way of computing it may round the sum to the result's dtype before the maps read it.
//
// In place of maps, a product of two matrices may sum one of its operands over k: a weight gradient does, and the sum is the bias
// gradient. bias_gradient_nest gives its nest, and there is no other with such a sum:
//
//   %dw, %db = product %x, %dy {transpose_a=true} : f32[4,6], f32[6] {
//     axes i:4, j:6, k:8
//     t0[i,j]: f32 = reduce_sum[k] (%x[k,i] * %dy[k,j])
//     t1[j]: f32 = reduce_sum[k] %dy[k,j]
//     %dw[i,j] = t0
//     %db[j] = t1
//   }
#pragma once

#include <optional>

#include "ir/graph.h"

namespace gcomp::ir {

/// A nest of statement 0 alone, without outputs. `attributes` are matmul's. Throws UserError where the operands do not fit.
LoopNest product_nest(const TensorType& a, const TensorType& b, const Attributes& attributes);

/// The nest of a product of two matrices that sums operand `summed`, 0 (a, kept along m) or 1 (b, kept along n), besides. Its
/// results are of the operands' dtype.
LoopNest bias_gradient_nest(const TensorType& a, const TensorType& b, const Attributes& attributes, int summed);
/// The operand that a product's nest sums; none where it has maps.
std::optional<int> summed_operand(const LoopNest& nest);

/// The violations of the forms above by a node of ops::kProduct whose nest is otherwise sound, as sentences.
std::vector<std::string> product_violations(const Node& product);

/// The statement whose value an output of a product's nest repeats; 0 where it stores the sum itself.
int stored_statement(const LoopNest& nest, std::size_t output);
/// Whether one of its results is the sums themselves, so that the plain product is stored there in any case.
bool keeps_sums(const Node& product);

}  // namespace gcomp::ir
