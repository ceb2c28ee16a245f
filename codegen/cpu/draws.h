// Random numbers of a vector loop. One call of Philox makes the numbers of four neighbouring elements, and gc_draw of the prelude
// makes those of many in vector code: it fills an array before the loop, which then reads them.
#pragma once

#include <string>
#include <vector>

#include "codegen/cpu/loop_range.h"

namespace gcomp::codegen::cpu {

/// Numbers that one gc_draw makes at most: an array of them stays in the first-level cache.
inline constexpr std::int64_t kMostDrawn = 1024;

/// Random numbers `stride` elements apart along an axis; `statement` stands for the one at the current point. Those that lie side
/// by side at each point are drawn together: a number has `offset` in the array that the draw of index `array` fills.
struct Draw {
  int statement = 0;
  ir::TermPtr term;
  std::int64_t stride = 1, offset = 0;
  std::size_t array = 0;
};

/// Whether some random number of the nest moves by 1 to 8 elements along `axis`.
bool has_draws(const FlatNest& nest, int axis);

/// Makes each random number that moves by 1 to 8 elements along `axis`, and stands in one of the statements that are `evaluated`, a
/// statement of its own at the nest's end. The seed, the step and the sample are those of the loop's start: numbers for which one
/// of them varies along the axis stay where they are.
std::vector<Draw> extract_draws(FlatNest& nest, int axis, const std::vector<bool>& evaluated);

/// Writes the draws for the range before its loop. Until the current scope closes, their statements stand for the numbers;
/// `position` is the loop's from its start, counted from 0.
void write_draws(KernelWriter& writer, const std::vector<Draw>& draws, const LoopRange& range, const ir::Index& position);

}  // namespace gcomp::codegen::cpu
