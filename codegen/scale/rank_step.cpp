#include "codegen/scale/rank_step.h"

#include <bit>
#include <numeric>

#include "ir/base/error.h"
#include "ir/base/units.h"

namespace gcomp::codegen::scale {
namespace {

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

double RankStep::gradient_bytes() const {
  double bytes = 0;
  for (const ParameterUse& use : parameters) bytes += use.gradient_bytes;
  return bytes;
}

double RankStep::parameter_bytes() const {
  double bytes = 0;
  for (const ParameterUse& use : parameters) bytes += use.parameter_bytes;
  return bytes;
}

std::vector<double> step_seconds(const Costed& costed, const DeviceRates& rates) {
  if (!costed.program) return {};
  const std::vector<runtime::Step>& steps = costed.program->steps;
  check_internal(costed.costs.size() == steps.size(), "costs of ", costed.costs.size(), " steps for ", steps.size());
  std::vector<double> seconds;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool exchanges = std::holds_alternative<runtime::CollectiveCall>(steps[i]);
    seconds.push_back(exchanges ? 0 : costed.costs[i].seconds(rates) + rates.launch_seconds);
  }
  return seconds;
}

RankStep rank_step(const Costed& shard, const Costed& count, const Costed& update, const DeviceRates& rates, Segments segments) {
  return {.shard = step_seconds(shard, rates),
          .count = sum_of(step_seconds(count, rates)),
          .parameters = parameter_uses(*shard.program, segments),
          .update = sum_of(step_seconds(update, rates)),
          .copy_bytes = rates.copy_bytes,
          .launch = rates.launch_seconds};
}

double combine_seconds(const RankStep& step, std::int64_t shard) {
  const int levels = std::countr_one(static_cast<std::uint64_t>(shard));
  return (levels + 2) * step.gradient_bytes() / step.copy_bytes + step.launch;
}

double total_seconds(const RankStep& step, std::int64_t shards, double bytes) {
  const int waiting = std::popcount(static_cast<std::uint64_t>(shards - 1));
  return (waiting + 2) * bytes / step.copy_bytes;
}

RankStep as_measured(RankStep step, std::int64_t shards, double seconds) {
  double sums = 0;
  for (std::int64_t i = 0; i + 1 < shards; ++i) sums += combine_seconds(step, i);
  if (shards > 1) sums += total_seconds(step, shards, step.gradient_bytes()) + step.launch;
  if (seconds <= sums)
    throw UserError(concat("a step of ", time_text(seconds), " is shorter than the ", time_text(sums),
                           " that adding the gradients of ", shards, " micro-batches takes"),
                    ExitCode::usage);
  const double computed = static_cast<double>(shards) * (step.count + sum_of(step.shard)) + step.update;
  const double factor = (seconds - sums) / computed;
  for (double& one : step.shard) one *= factor;
  step.count *= factor;
  step.update *= factor;
  return step;
}

}  // namespace gcomp::codegen::scale
