// Several datasets as one, gone through by weights.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gcomp/dataset.h"
#include "runtime/batch_plan.h"

namespace gcomp::data {

/// The rows of all, one dataset's after another's: parts() has their numbers. Arrays are those of the first, found by name in the
/// others. Throws UserError for none, and where arrays differ, with the name and both types.
std::unique_ptr<Dataset> mixture(std::vector<std::shared_ptr<const Dataset>> sources);

/// The order of a mixture whose sources have so many rows. An epoch has as many draws as there are rows in all; draw number n of
/// the run (epochs count on) belongs to a source by a fixed pattern of 10,000 draws, in which every source is spread evenly with
/// its share, rounded to 1 in 10,000. A source's own draws go through its own epochs, each row once in each, shuffled by a key
/// of its own or as they lie. Any draw is found at once, as the pattern repeats. Throws UserError (exit 2) for another number of
/// weights than sources, for one that is not above 0, or so small that it has no draw in the pattern.
runtime::RowDraw draw_mixed(std::span<const std::int64_t> rows, std::span<const double> weights, std::uint64_t seed,
                            runtime::RowOrder order);

}  // namespace gcomp::data
