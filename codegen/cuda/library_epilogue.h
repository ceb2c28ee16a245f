// Which epilogues of a product (ir/product.h) cuBLASLt computes by itself.
#pragma once

#include <optional>

#include "ir/nest/term.h"
#include "runtime/program.h"

namespace gcomp::codegen::cuda {

/// An epilogue in the library's terms, over the operands and results of the product.
struct LibraryEpilogue {
  runtime::EpilogueKind kind = runtime::EpilogueKind::bias;
  int result = 0;           ///< the node's result that the library stores as its own
  std::optional<int> bias;  ///< the operand that is added along n; none for gelu_gradient; of bias gradients the result that is one
  std::optional<int> aux;   ///< gelu: the result that keeps what GELU was applied to; gelu_gradient: the operand that holds it
};

inline bool is_gelu(runtime::EpilogueKind kind) {
  return kind == runtime::EpilogueKind::gelu || kind == runtime::EpilogueKind::gelu_gradient;
}

/// The library's epilogue that computes all results of a nest of the form of ir/product.h; none where there is no such: other
/// functions, f64, several dtypes, a bias gradient of one element or of an operand whose rows lie across k. A function of one or
/// two variables is recognised by its values: it is made of operations that are smooth everywhere, and agrees at many points within
/// what its dtype resolves. RELU is none of them: the library's gives 0 for NaN.
std::optional<LibraryEpilogue> library_epilogue(const ir::LoopNest& nest, const std::vector<TensorType>& operands,
                                                const std::vector<TensorType>& results);

}  // namespace gcomp::codegen::cuda
