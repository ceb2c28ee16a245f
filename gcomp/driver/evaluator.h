// Runs the program that evaluates a model over arrays of any number of rows.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gcomp/dataset.h"
#include "gcomp/driver/batched_program.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/index_limits.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/evaluation.h"
#include "gcomp/tensor_view.h"
#include "passes/training/metrics/metric.h"
#include "runtime/executable.h"

namespace gcomp::driver {

/// What a program of passes::attach_evaluation() gives.
struct EvaluatedModel {
  passes::LossSpec loss;
  std::vector<passes::MetricSpec> metrics;
  passes::EvaluationPlan plan;
  std::vector<IndexLimit> limits;
};

/// What one run gives: its rows, and the results in the program's order.
struct EvaluatedPart {
  std::int64_t rows = 0;
  std::vector<Tensor> results;
};

class Evaluator {
 public:
  /// Throws UserError where the program does not give what the model says.
  Evaluator(std::unique_ptr<runtime::Executable> executable, EvaluatedModel model);

  /// The loss and the metrics over all rows. The last batch is filled up with rows that count for nothing; where that would change
  /// what is computed, it is left out, which Evaluation::rows tells. Throws UserError where an array is missing or of another type,
  /// where there are no rows, or fewer than a batch that cannot be filled up, and for an index out of range.
  Evaluation run(const Batch& arrays);
  /// The same of rows that are read as they are due, by `workers` threads ahead: memory for some batches is all that it takes.
  /// Class numbers are checked against `limits`. Several ranks each run some of the batches, and all have the same result, which
  /// their number does not change.
  Evaluation run(const Dataset& data, std::span<const LabelLimit> limits, int workers, const Ranks& ranks = Ranks(nullptr),
                 const BadRows& bad = {});
  runtime::Executable& executable() const { return program_.executable(); }

 private:
  /// Runs rows [first, first + count).
  using RunRows = std::function<void(std::int64_t first, std::int64_t count)>;
  std::int64_t parts_of(std::int64_t rows) const;
  EvaluatedPart run_part(std::int64_t rows, std::int64_t part, const RunRows& run);

  BatchedProgram program_;
  EvaluatedModel model_;
};

}  // namespace gcomp::driver
