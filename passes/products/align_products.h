// Products in 16 bits get matrices whose rows a GPU reads in whole vectors of 16 bytes.
//
// A vocabulary of 50257 words gives logits with rows of 100514 bytes: from one row to the next the alignment changes, so the
// library's fast kernels, which copy 16 bytes at a time, cannot be used, and no kernel that reads the logits reads more than 2
// bytes at once. The dimension is filled up with zeros, which change no sum, and what they add to the result is cut off again:
//
//   %y = matmul %x, %w {transpose_b=true} : bf16[2048,50257]     ->     %p = pad %w {high=[47,0]}   : bf16[50304,768]
//                                                                       %q = matmul %x, %p {transpose_b=true} : bf16[2048,50304]
//                                                                       %y = slice %q {sizes=[2048,50257]}
//
// Neither costs a copy where a kernel makes the operand and kernels read the result: fusion writes the zeros with the operand and
// reads past the rest. So a value is padded where it is made, once for all products that read it, and other readers read a slice of
// it. Left alone are small products, results that the caller reads, and dimensions that no matrix has as its rows.
#pragma once

#include <cstdint>

#include "ir/target_info.h"

namespace gcomp::passes {

struct AlignOptions {
  std::int64_t min_work = std::int64_t{1} << 28;  ///< multiply-adds of a product that is worth it
  /// Dimensions from `long_from` on become multiples of this: tiles that are whole, at less than 2 % more work.
  std::int64_t long_elements = 64, long_from = 4096;
};

/// Needs a graph of primitive ops before fuse_bias_gradients; nothing is done for a target that gains nothing. True if anything was
/// padded.
bool align_products(ir::Graph& graph, const ir::TargetInfo& target, const AlignOptions& options = {});

}  // namespace gcomp::passes
