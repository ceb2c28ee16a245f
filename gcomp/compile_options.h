// What decides how a model is compiled, for training and for inference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/function.h"
#include "gcomp/input_form.h"
#include "gcomp/limits.h"
#include "gcomp/optional.h"
#include "gcomp/tensor.h"

namespace gcomp {

/// What decides a model's graph.
struct GraphOptions {
  std::vector<std::pair<std::string, std::int64_t>> dims;  ///< sizes of symbolic dimensions
  std::vector<std::pair<std::string, Shape>> shapes;       ///< whole shapes of inputs
  /// All floats of the model compute as this; without it, as the file says, or in training as f32. bf16 and f16 mean mixed
  /// precision: everything is kept in f32, and what bears it computes in 16 bits.
  Optional<DType> precision;
  /// f16: what the loss is multiplied by before it is differentiated; without it, what PyTorch's GradScaler arrives at.
  Optional<double> loss_scale;
  std::vector<std::string> freeze, train;  ///< globs over parameters; the more exact wins
  std::vector<std::string> tie, untie;     ///< globs: share one parameter / one parameter for each use
  std::vector<InputForm> input_forms;      ///< of inputs that are fed as bytes, or by columns that the program standardizes
  /// What was done to rows before they came (docs/data.md, "Transforms"), in the form of inference: kept with the model.
  std::string preprocessing;
  /// What numbers of the data stand for, classes and tokens (JSON; docs/data.md, "Names of numbers"):
  /// kept with the model, so that other data are numbered the same.
  std::string number_names;
  std::string batchnorm_variance;  ///< "", "unbiased" or "population": overrides the rule for running variances
  std::int64_t seed = 0;           ///< of Dropout and other random operators
  bool training_form = false;      ///< of predictions: BatchNormalization by the batch, Dropout live
  ImportLimits limits;
  ProgramLimits program_limits;
};

/// What a caller may watch or switch off. All functions may be empty.
struct CompileHooks {
  Function<void(std::string_view phase)> begin;                  ///< a named part of the work begins
  Function<void(std::string_view phase, double seconds)> phase;  ///< a named part of the work has ended
  std::vector<std::string> disabled;                             ///< passes to leave out (gcomp-opt --list-passes)
};

}  // namespace gcomp
