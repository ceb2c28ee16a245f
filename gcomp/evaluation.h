// What an evaluation says of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "gcomp/optional.h"
#include "gcomp/tensor.h"

namespace gcomp {

struct Evaluation {
  /// Of all rows as one batch; a loss that is no mean over its elements, such as dice, is averaged over batches by their rows.
  double loss = 0;
  Optional<double> accuracy;  ///< share of right decisions, where the loss decides between classes or a metric asks for it
  /// What was asked for, by its text: a scalar, or confusion's matrix; f64.
  std::vector<NamedTensor> metrics;
  std::int64_t rows = 0;  ///< how many were evaluated
};

}  // namespace gcomp
