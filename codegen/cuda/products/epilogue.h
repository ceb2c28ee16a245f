// What follows a generated product at each of its elements, as text within the product's kernel.
#pragma once

#include <span>
#include <string>

#include "ir/base/tensor.h"
#include "ir/nest/term.h"

namespace gcomp::codegen::cuda {

/// A lambda over (row, column, sum) of the result as a matrix of all rows of all of the batch, and the parameters that it reads and
/// stores through: p1, p2, ... for operands, then results.
struct EpilogueText {
  std::string parameters;  ///< ", const float* p1, float* p2"
  std::string lambda;      ///< "const auto epilogue = [=](...) {...};" in lines
  std::int64_t columns = 0;
};

/// `after` as codegen/product.h has it: operand 0 is the sums, which the lambda is given. Types are those of all operands and of
/// the results; the sums' type is [batch..., m, n].
EpilogueText epilogue_text(const ir::LoopNest& after, std::span<const TensorType> operands, std::span<const TensorType> results);

}  // namespace gcomp::codegen::cuda
