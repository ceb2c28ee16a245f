// The nest of a matmul and of a kernel that reads it, as one product and what is left of the kernel.
//
//   %s = matmul %x, %w                           product                                  rest
//   %y, %n = kernel %s, %b {                     %y = product %x, %w, %b {                %n = kernel %y {
//     t0[i,j] = relu(%s[i,j] + %b[j])       ->     t0[i,j] = reduce_sum[k] (...)     +      t0[i] = reduce_sum[j] %y[i,j]
//     t1[i] = reduce_sum[j] t0                     t1[i,j] = relu(t0 + %b[j])               %n[i] = t0
//     %y[i,j] = t0, %n[i] = t1                     %y[i,j] = t1                           }
//   }                                            }
//
// The product takes the results that stand on maps alone and are stored once for each of its elements; the kernel's axes become
// digits of the element's position, so a reshape between the two does not matter.
#pragma once

#include <optional>
#include <vector>

#include "passes/fusion/kernel_body.h"

namespace gcomp::passes {

struct ProductAndRest {
  Body product;                     ///< operands a and b of the matmul first
  std::vector<TensorType> results;  ///< of the product: the results of the kernel that it takes, then the sum where it is kept
  std::vector<std::size_t> taken;   ///< those results of the kernel
  bool keeps_sum = false;           ///< the last result stands for the matmul's
  std::optional<Body> rest;         ///< the kernel's other results, from the one that is taken
};

struct SumReaders {
  bool keeps_sum = false;           ///< others read the matmul too, or the sum with its bias: that becomes a result
  const ir::Value* bias = nullptr;  ///< where it is the sum with this bias that `body` reads, as its last operand, which is null
};

/// Nothing where no result can be taken, where the kernel reads the matmul at another element than it stores, or where more than
/// one result of several would be taken. `body` is the kernel's, with the results of `kernel` in their order.
std::optional<ProductAndRest> fused_product(const ir::Node& matmul, const ir::Node& kernel, const Body& body,
                                            const SumReaders& sum);

}  // namespace gcomp::passes
