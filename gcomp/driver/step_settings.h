// What a training step does beside loss and optimizer, as its user says it: groups of parameters, clipping, an average of the
// parameters, steps that are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontend/imported_model.h"
#include "passes/training/sharded_state.h"
#include "passes/training/step_options.h"

namespace gcomp::driver {

struct StepSettings {
  std::vector<std::string> groups;  ///< "SELECTOR: option=value, ..." (gcomp/driver/parameter_groups.h)
  std::optional<double> clip_norm, clip_value;
  std::optional<double> average;  ///< decay of the average
  bool skip_non_finite = false;
  bool skip_spikes = false;        ///< a step beyond set_limits() changes nothing, nor one that is not finite
  std::int64_t micro_batches = 1;  ///< shards of consecutive rows that a batch is cut into
  std::int64_t ranks = 1;          ///< processes that share the shards
  passes::Sharding sharding = passes::Sharding::optimizer;  ///< what each of several holds a share of
  std::int64_t bucket_bytes = std::int64_t{32} << 20;       ///< of what ranks exchange at once, about
  bool sync_batchnorm = false;                              ///< batch statistics are those of all shards
  std::optional<std::int64_t> most_memory;                  ///< bytes of a step, or 0 for as few as can be (passes/pipeline.h)
  std::int64_t loss_chunks = 1;  ///< parts of rows that the loss is computed by, or 0 for a number by its own choice
  double learning_rate = 0;      ///< what the absolute rates of groups stand beside
};

/// `--zero`, a stage of ZeRO. Throws UserError (exit 2) for one that there is not.
passes::Sharding parse_sharding(std::int64_t zero);
/// Throws UserError (exit 2) for a number out of range, and where values and norm are both to be clipped.
void check(const StepSettings& settings);
/// The rows of a shard. Throws UserError (exit 2) where there are several and no batch is given, or one that is not cut evenly.
std::optional<std::int64_t> shard_rows(std::optional<std::int64_t> batch, std::int64_t micro_batches);

/// What is said of a group: its own text, and what is in it.
struct GroupSummary {
  std::string text;
  double rate = 1;  ///< times the base rate
  std::int64_t tensors = 0, elements = 0;
};

/// The settings for a forward graph in training form. Throws UserError (exit 2) for a group that matches nothing, and for options
/// that have no effect.
struct SettledStep {
  passes::StepOptions options;
  std::vector<GroupSummary> groups;
};
SettledStep settled(const StepSettings& settings, const passes::OptimizerSpec& optimizer, const frontend::ImportedModel& model,
                    const ir::Graph& forward);

}  // namespace gcomp::driver
