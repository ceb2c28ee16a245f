// A node of ops::kProduct (ir/product.h) as a library call with an epilogue, and what is left of it where the library's product
// stays plain.
//
//   %y, %z = product %a, %b, %bias {...}   ->   MatmulCall into %y, its library epilogue where there is one, and
//                                               after: kernel %y, %bias { %y[i,j] = gelu(%y[i,j] + %bias[j])  %z[i,j] = ... }
#pragma once

#include "codegen/cuda/library_epilogue.h"
#include "codegen/library_calls.h"

namespace gcomp::codegen::cuda {

/// A product taken apart.
struct ProductParts {
  const ir::Value* sums = nullptr;  ///< the result in whose memory the plain product is put
  std::optional<LibraryEpilogue> library;
  ir::LoopNest after;                      ///< reads the operands below and stores the results below
  ir::LoopNest whole;                      ///< the same, and stores every result of the node; empty where `after` sums an operand
  std::vector<const ir::Value*> operands;  ///< the sums and what the epilogue reads besides, or the operand that is summed
  std::vector<const ir::Value*> results;   ///< all but sums that stay as they are
};
ProductParts take_apart(const ir::Node& product, const runtime::Target& target);

/// Whether generated kernels compute the epilogue where they store: not if it is so long that its values crowd the sums out of the
/// registers, nor if it sums an operand, of which no tile sees all.
bool fits_product_kernel(const ProductParts& parts);

/// The library's epilogue over buffers.
runtime::LibraryEpilogue over_buffers(const LibraryEpilogue& epilogue, const ir::Node& product, const BufferOf& buffer_of);

}  // namespace gcomp::codegen::cuda
