// The rows of one dataset in two parts, such as what is trained on and what is evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gcomp/dataset.h"

namespace gcomp::data {

struct SplitOptions {
  double share = 0.9;        ///< of the rows for the first part, between 0 and 1
  bool sequence = false;     ///< rows follow one another: the last ones are the second part
  std::int64_t overlap = 0;  ///< of a sequence: rows between the parts that would share elements with the second
};

/// Positions of the rows of each part, ascending.
struct SplitRows {
  std::vector<std::int64_t> first, second;
};

/// Each row is in one part at most; which is a pure function of the number of rows and of the share, so that a run that goes on,
/// under whatever seed, keeps them apart. The first part has share * rows of them, rounded. Throws UserError (exit 2) for a share
/// outside of 0 to 1, and where a part would have no rows.
SplitRows split_rows(std::int64_t rows, const SplitOptions& options);

/// The same for each class apart, of which rows have one each: share * n of its n rows, rounded, are in the first part, but at
/// least one in each where there are two. A single row is in the first. Which rows is a pure function of the classes and the share.
SplitRows split_classes(std::span<const std::int64_t> classes, double share);

/// Some rows of a dataset, in the order given.
std::unique_ptr<Dataset> rows_of(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> rows);

}  // namespace gcomp::data
