// What passes ask of the target that a graph is lowered for. Code generation makes one for each target (codegen/target.h); a
// default one stands for no target in particular: every op is expanded, nothing is done that only some targets gain from.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/graph.h"
#include "ir/ops/table.h"

namespace gcomp::ir {

struct TargetInfo {
  std::int64_t buffer_alignment = 64;  ///< bytes, a power of two of at least 64
  /// Composites of attention that code generation takes as they are; all others are expanded.
  std::function<bool(const Node&)> legal_composite;
  bool sums_squares = false;    ///< code generation takes square_sums of f32 and f64 as it is
  bool copies_buckets = false;  ///< code generation takes bucket and unbucket as they are
  /// Whether an attention of f32 computes in f16 or bf16 where precision is mixed, else in f32, and its result is rounded. Without
  /// it each does.
  std::function<bool(const Node& attention, DType half)> half_attention;
  /// Whether a contraction of f16 or bf16 computes in f32, between casts of its operands and its result. Without it none does.
  std::function<bool(const Node& contraction)> widens;
  /// Whether products compute a convolution whose window is one pixel faster than convolutions do.
  bool pixel_products = false;
  /// Rows of 16-bit matrices are padded to multiples of this many elements; 0 where that gains nothing.
  std::int64_t half_row_elements = 0;
  /// Long reductions to fewer results are split until about as many sums are computed at once; 0 leaves that to the pass.
  std::int64_t parallel_sums = 0;
  /// Strips of rows that keep the target busy, where one kernel can sum the columns of a strip beside what it does to each row; 0
  /// where it cannot.
  std::int64_t row_strips = 0;
  /// Whether a launch costs so much that equal reductions nobody waits for are worth one together.
  bool dear_launches = false;
  /// Whether the libraries compute a contraction as fast where an operand or a result is this view as where it is dense. Without it
  /// contractions take no views; composites say by `legal_composite` which they take.
  std::function<bool(const Node& contraction, const StridedView& view)> takes_view;
  /// Whether a product computes all results of a nest of ir/product.h on its way. Without it products take no epilogues.
  std::function<bool(const LoopNest& nest, const std::vector<TensorType>& operands, const std::vector<TensorType>& results)>
      computes_epilogue;

  bool is_legal(const Node& composite) const {
    if (composite.op == &ops::kBucket || composite.op == &ops::kUnbucket) return copies_buckets;
    if (composite.op != &ops::kSquareSums) return legal_composite && legal_composite(composite);
    const DType dtype = composite.operands[0]->type.dtype;
    return sums_squares && (dtype == DType::f32 || dtype == DType::f64);
  }
};

}  // namespace gcomp::ir
