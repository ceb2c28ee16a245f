// Index notation as text: the body of a fused kernel. Axes are i, j, k, l, m, n, a6, a7, ...; statement s is t<s>; a subterm
// that occurs more than once and is not small is named once, by a line "let s<n> = ...".
#pragma once

#include <string>
#include <vector>

#include "ir/nest/term.h"

namespace gcomp::ir {

/// How a nest names what it reads and writes: "%x", or "operand0" and "result0" where names would be ambiguous.
struct NestNames {
  std::vector<std::string> operands;
  std::vector<DType> operand_dtypes;
  std::vector<std::string> results;
};

/// One line for the axes and one for each statement and output, each after `indent`.
std::string print(const LoopNest& nest, const NestNames& names, const std::string& indent);
/// With operand0, operand1, ... and result0, ...; for messages and debugging.
std::string print(const LoopNest& nest);
/// "i*128 + j", "(i*3 + j) / 4", "<operand1[i] : 10>".
std::string print(const Index& index);
std::string print(const TermPtr& term);

}  // namespace gcomp::ir
