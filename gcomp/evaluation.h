// What an evaluation says of a model.
#pragma once

#include <cstdint>

#include "gcomp/optional.h"

namespace gcomp {

struct Evaluation {
  double loss = 0;            ///< mean over all elements of all rows (cross_entropy: over all labels that are not ignored)
  Optional<double> accuracy;  ///< share of right decisions, where the loss decides between classes
  std::int64_t rows = 0;      ///< how many were evaluated
};

}  // namespace gcomp
