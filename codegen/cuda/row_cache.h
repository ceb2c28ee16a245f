// What a row kernel keeps in registers: values of each element that an earlier pass over the row computed or read and that a later
// pass needs again.
#pragma once

#include <vector>

#include "codegen/schedule.h"

namespace gcomp::codegen::cuda {

struct RowCache {
  std::vector<int> statements;  ///< each a kept value
  std::vector<int> phase;       ///< in which each is made
};

/// Finds the largest terms that two or more phases evaluate for each element, and makes statements of them.
RowCache make_row_cache(FlatNest& nest, Schedule& schedule);

/// Per-element statements and reductions that a phase evaluates: its reductions, and in the last phase what the stores need.
std::vector<ir::TermPtr> roots_of_phase(const FlatNest& nest, const Schedule& schedule, int phase);

/// Of `statements`, those that the roots need, not looking behind the statements in `known`.
std::vector<int> needed_statements(const FlatNest& nest, const std::vector<ir::TermPtr>& roots, const std::vector<int>& statements,
                                   const std::vector<int>& known);

}  // namespace gcomp::codegen::cuda
