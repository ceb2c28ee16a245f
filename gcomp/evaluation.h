// What an evaluation says of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "gcomp/optional.h"
#include "gcomp/tensor.h"

namespace gcomp {

struct Evaluation {
  double loss = 0;                   ///< of all rows as one batch; what is no mean, such as dice, is averaged over batches
  Optional<double> accuracy;         ///< share of right decisions, where the loss decides between classes or a metric asks for it
  std::vector<NamedTensor> metrics;  ///< by their texts: scalars, or confusion's matrix; f64
  std::int64_t rows = 0;             ///< how many were evaluated
};

}  // namespace gcomp
