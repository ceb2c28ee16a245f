// A model's loss and metrics over arrays, without training.
#pragma once

#include <string>
#include <vector>

#include "gcomp/dataset.h"
#include "gcomp/device_options.h"
#include "gcomp/driver/compile.h"
#include "gcomp/evaluation.h"

namespace gcomp::driver {

struct EvaluateOptions {
  LossSpec loss;
  std::vector<passes::MetricSpec> metrics = {};
  std::int64_t batch = 0;   ///< rows of one run; 0: what follows from the model's shapes (gcomp/driver/row_batches.h)
  GraphOptions graph = {};  ///< without a precision as the file says
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

struct EvaluationRun {
  Evaluation evaluation;
  std::string output;             ///< that a loss without arguments looks at; "" for others
  frontend::ImportedModel model;  ///< what import decided
  std::string device;             ///< "cpu, 2 threads, ...", and why this device
};

/// In inference form. `arrays` are the model's inputs and what loss and metrics read, all of one number of rows. Throws UserError
/// as compiling does, where an array is missing or does not fit, and for a label or index out of range.
EvaluationRun evaluate(const Model& model, const EvaluateOptions& options, const Batch& arrays);
/// The same over rows that are read as they are due, by `workers` threads (below 0: as many as suit the data).
EvaluationRun evaluate(const Model& model, const EvaluateOptions& options, const Dataset& data, int workers = -1);

}  // namespace gcomp::driver
