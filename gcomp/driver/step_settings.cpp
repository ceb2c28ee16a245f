#include "gcomp/driver/step_settings.h"

#include <cmath>

#include "gcomp/driver/parameter_groups.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "passes/training/chunk_loss.h"
#include "passes/training/distribute.h"

namespace gcomp::driver {
namespace {

void require_positive(const std::optional<double>& value, std::string_view flag) {
  if (value && !(*value > 0 && std::isfinite(*value)))
    throw UserError(concat(flag, " ", *value, ": wanted a number above 0"), ExitCode::usage);
}

void check_micro_batches(std::int64_t micro_batches) {
  if (micro_batches < 1 || micro_batches > kMostMicroBatches)
    throw UserError(concat("--micro-batches ", micro_batches, ": wanted 1 to ", kMostMicroBatches), ExitCode::usage);
}

}  // namespace

passes::Sharding parse_sharding(std::int64_t zero) {
  if (zero < 0 || zero > passes::stage_of(passes::kMostSharding))
    throw UserError(concat("--zero ", zero, ": wanted 0 to ", passes::stage_of(passes::kMostSharding)), ExitCode::usage);
  return static_cast<passes::Sharding>(zero);
}

void check(const StepSettings& settings) {
  require_positive(settings.clip_norm, "--clip-norm");
  require_positive(settings.clip_value, "--clip-value");
  if (settings.clip_norm && settings.clip_value)
    throw UserError(concat("--clip-norm ", *settings.clip_norm, " and --clip-value ", *settings.clip_value,
                           ": gradients are clipped one way; leave one of them out"),
                    ExitCode::usage);
  if (settings.average && !(*settings.average >= 0 && *settings.average < 1))
    throw UserError(concat("--ema ", *settings.average, ": wanted a decay from 0 to below 1, such as 0.999"), ExitCode::usage);
  check_micro_batches(settings.micro_batches);
  if (settings.most_memory && *settings.most_memory < 0)
    throw UserError(concat("a step of ", *settings.most_memory, " bytes: wanted a number above 0, or 0 for as few as can be"),
                    ExitCode::usage);
  if (settings.loss_chunks < 0 || settings.loss_chunks > passes::kMostLossChunks)
    throw UserError(concat("--loss-chunks ", settings.loss_chunks, ": wanted 1 to ", passes::kMostLossChunks, ", or auto"),
                    ExitCode::usage);
  if (settings.bucket_bytes < 1)
    throw UserError(concat("a bucket of ", settings.bucket_bytes, " bytes: wanted one byte or more"), ExitCode::usage);
  passes::require_ranks(settings.micro_batches, settings.ranks, settings.sharding);
  if (settings.sync_batchnorm && settings.ranks > 1 && settings.ranks < settings.micro_batches &&
      passes::takes_turns(settings.sharding))
    throw UserError(concat("--zero ", passes::stage_of(settings.sharding),
                           " and --sync-batchnorm: wanted one micro-batch for each of ", settings.ranks, " ranks, or --zero 1"),
                    ExitCode::usage);
}

std::optional<std::int64_t> shard_rows(std::optional<std::int64_t> batch, std::int64_t micro_batches) {
  check_micro_batches(micro_batches);
  if (micro_batches == 1) return batch;
  if (!batch)
    throw UserError(
        concat("--micro-batches ", micro_batches, ": give the rows of a step, which it cuts, such as --batch ", 8 * micro_batches),
        ExitCode::usage);
  if (*batch % micro_batches != 0)
    throw UserError(
        concat("--micro-batches ", micro_batches, ": a batch of ", *batch, " rows is not cut into ", micro_batches, " equal parts"),
        ExitCode::usage);
  return *batch / micro_batches;
}

SettledStep settled(const StepSettings& settings, const passes::OptimizerSpec& optimizer, const frontend::ImportedModel& model,
                    const ir::Graph& forward) {
  check(settings);
  SettledStep step;
  step.options.clipping = {.norm = settings.clip_norm, .value = settings.clip_value};
  step.options.average = settings.average;
  step.options.skip_non_finite = settings.skip_non_finite || settings.skip_spikes;
  step.options.skip_spikes = settings.skip_spikes;
  step.options.groups.tables = looked_up_tables(model);
  if (settings.groups.empty()) return step;
  std::vector<GroupRequest> requests;
  for (const std::string& text : settings.groups) requests.push_back(parse_group(text, optimizer, settings.learning_rate));
  GroupedParameters grouped = group_parameters(requests, optimizer, model, forward);
  step.options.groups = std::move(grouped.groups);
  step.groups = std::move(grouped.summaries);
  return step;
}

}  // namespace gcomp::driver
