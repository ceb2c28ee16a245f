// Elementary functions in the middle of long formulas, as GELU has its tanh. A vector loop computes each element by one long chain
// of operations, of which a processor looks ahead over two or three elements and mostly waits. So what goes into the function, the
// function, and what is made of it become loops of their own over a strip of elements, which hands values on through an array in
// the first-level cache: GELU's gradient takes 5.0 ns a vector of AVX2 in the place of 7.4 on a Zen 5. No bit changes.
#pragma once

#include <vector>

#include "codegen/cpu/loop_range.h"

namespace gcomp::codegen::cpu {

/// A function of one argument; the statements stand for the argument and for the function's value at the current point.
struct FunctionStrip {
  int argument = 0, value = 0;
  ir::TermPtr call;
};

/// Whether extract_functions() would find any in the whole nest.
bool has_functions(const FlatNest& nest, int axis);

/// Makes each function that varies along `axis`, stands in one of the statements that are `evaluated`, under no condition, and has
/// work before and behind it, statements of its own at the nest's end; none where a loop has less than some tens of `positions`.
std::vector<FunctionStrip> extract_functions(FlatNest& nest, int axis, const std::vector<bool>& evaluated, std::int64_t positions);

/// Writes their loops over the range before its own. Until the current scope closes, their statements stand for the values;
/// `position` is the loop's from its start, counted from 0.
void write_functions(KernelWriter& writer, const std::vector<FunctionStrip>& strips, const LoopRange& range,
                     const ir::Index& position);

}  // namespace gcomp::codegen::cpu
