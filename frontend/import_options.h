// What a caller decides of a model before it becomes a graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/limits.h"
#include "ir/base/tensor.h"

namespace gcomp::frontend {

using gcomp::ImportLimits;

/// Of what the statistics of a batch are taken: the graph is that of one of so many shards with equal numbers of rows.
struct WholeBatch {
  std::int64_t shards = 1;
  std::int64_t lock_step = 1;  ///< how many of them share a process (ir/ops/lock_step.h)
};

struct ImportOptions {
  std::map<std::string, std::int64_t> dims = {};  ///< symbolic dimension -> size
  std::map<std::string, Shape> shapes = {};       ///< input -> whole shape; wins over `dims`
  std::map<std::string, Tensor> constants = {};   ///< inputs whose value is fixed now; the graph has no such input
  bool training = false;                          ///< BatchNormalization and Dropout train, whatever form the file has
  bool training_form = false;                     ///< BatchNormalization and Dropout as in training, though nothing trains
  bool as_written = false;                        ///< BatchNormalization and Dropout mean what the file says; not with the former
  /// Names among which the outputs are that a loss looks at, "" for the first of floats. Where they are given, others that cannot
  /// be computed are left out, and what is not supported on the way to them alone is no error.
  std::optional<std::vector<std::string>> loss_outputs = {};
  std::int64_t seed = 0;                 ///< of Dropout and the random operators: the initial value of state `random_seed`
  std::optional<DType> float_type = {};  ///< all floats become this type; else f16 and bf16 compute as the file says
  /// Globs over initializers (and over the parts of a split one). Of two that match, the one with more characters that are no
  /// wildcards decides; a UserError (exit 2) where they have as many.
  std::vector<std::string> freeze = {}, train = {};
  std::vector<std::string> tie = {}, untie = {};  ///< globs: share one parameter / one parameter for each use
  std::string batchnorm_variance = {};            ///< "", "unbiased" or "population": overrides the rule for running variances
  WholeBatch batch = {};                          ///< of BatchNormalization in training
  ImportLimits limits = {};
};

}  // namespace gcomp::frontend
