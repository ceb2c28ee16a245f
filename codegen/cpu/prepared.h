// What is computed into arrays before a vector loop: random numbers, and functions in the middle of long formulas.
#pragma once

#include <vector>

#include "codegen/cpu/draws.h"
#include "codegen/cpu/function_strips.h"

namespace gcomp::codegen::cpu {

struct Prepared {
  std::vector<Draw> draws;
  std::vector<FunctionStrip> strips;

  bool empty() const { return draws.empty() && strips.empty(); }
};

/// As extract_draws() and extract_functions().
inline Prepared extract_prepared(FlatNest& nest, int axis, const std::vector<bool>& evaluated, std::int64_t positions) {
  std::vector<Draw> draws = extract_draws(nest, axis, evaluated);
  return {std::move(draws), extract_functions(nest, axis, evaluated, positions)};
}

/// As write_draws() and write_functions(), over at most kMostDrawn positions.
inline void write_prepared(KernelWriter& writer, const Prepared& prepared, const LoopRange& range, const ir::Index& position) {
  write_draws(writer, prepared.draws, range, position);
  write_functions(writer, prepared.strips, range, position);
}

}  // namespace gcomp::codegen::cpu
