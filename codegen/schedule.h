// How a loop nest becomes loops. Every nest has one of five kinds of schedule:
//   map      no reduction: loops over all axes, the vector axis innermost
//   rows     reductions, the vector axis is reduced: for each kept point, loops over the reduced axes
//   columns  reductions, the vector axis is kept: for each block of it, loops over the reduced axes, lanes along the block
//   scan     running combination: serial along the scanned axis, parallel over the others
//   scatter  adds into zeros at computed places, in the order of the statement's axes
// Rows may have sums over rows beside them, of each column of a strip (column_sums.h).
// A nest with reductions runs in phases: a statement that needs the result of a reduction belongs to a later phase than it. Each
// phase is one pass over the reduced axes. What an earlier pass computed is computed again, or kept where that is dear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

enum class ScheduleKind : std::uint8_t { map, rows, columns, scan, scatter };

struct Schedule {
  ScheduleKind kind = ScheduleKind::map;
  int vector_axis = -1;      ///< -1 where the nest has no axis
  std::vector<int> outer;    ///< kept axes but the vector axis, outermost first
  std::vector<int> reduced;  ///< reduced axes but the vector axis, outermost first; of a scan, the scanned axis
  std::vector<int> strip;    ///< rows: the axes that stores sum over, none of them among `outer`
  int transposed_axis = -1;  ///< map: an outer axis along which reads are contiguous that are not along the vector axis
  int phases = 1;
  std::vector<int> phase;         ///< of each statement
  std::vector<bool> per_element;  ///< statements that vary over reduced axes
  std::vector<bool> keep;         ///< per-element statements whose values later phases read from memory

  std::int64_t points = 1;  ///< of all axes together
};

/// Whether a text may say parts of its nest several times, so that each copy runs faster: short reductions unrolled, loops once for
/// each outcome of a condition.
enum class Expansion : std::uint8_t { full, none };
/// A text longer than this, in bytes, is emitted without expansion: compilers take more than linear time.
inline constexpr std::size_t kMostExpandedText = 24 << 10;

/// Brings the nest into the form that its schedule speaks of, and schedules it.
Schedule schedule(FlatNest& nest, Expansion expansion = Expansion::full);

/// A measure of the time one value of the statement takes: 1 for arithmetic, more for division and functions. Locals not counted.
int cost_of(const ir::TermPtr& term);

}  // namespace gcomp::codegen
