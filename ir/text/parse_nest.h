// Reads the body of a fused kernel: the inverse of ir/text/print_nest.h.
#pragma once

#include <string>
#include <vector>

#include "ir/nest/term.h"
#include "ir/text/scanner.h"

namespace gcomp::ir {

/// What the body of a kernel may refer to. For a multi_kernel, the operands and results of its first segment; then only
/// operand0, result0, ... name them.
struct NestScope {
  std::vector<std::string> operand_names, result_names;  ///< without sigil
  std::vector<TensorType> operands, results;
  bool flat = false;  ///< results and operands are indexed as flat arrays, operands of rank 0 without index
};

/// From after the '{' to past the '}'.
LoopNest parse_nest(Scanner& scanner, const NestScope& scope);

}  // namespace gcomp::ir
