// What one of several processes does in a training step, as plain data: what it computes and when, and what it exchanges
// (docs/distributed.md). Times are seconds at the rates of a device, sizes bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/device_rates.h"
#include "codegen/scale/parameter_use.h"
#include "codegen/step_cost.h"
#include "runtime/program.h"

namespace gcomp::codegen::scale {

struct RankStep {
  std::vector<double> shard = {};  ///< of each step of the program that runs for each micro-batch
  double count = 0;                ///< what is counted before, of each micro-batch
  std::vector<ParameterUse> parameters = {};
  double update = 0;      ///< what a step does once: clipping, optimizer, of all parameters
  double copy_bytes = 1;  ///< a second, read and written together: what adds gradients
  double launch = 0;      ///< of one kernel by itself

  double gradient_bytes() const;
  double parameter_bytes() const;
};

/// A program and what each of its steps costs.
struct Costed {
  const runtime::Program* program = nullptr;  ///< null for none
  std::span<const StepCost> costs = {};
};

/// What the steps of a program take one after another, each with its launch; exchanges between ranks take no time here.
std::vector<double> step_seconds(const Costed& costed, const DeviceRates& rates);

/// `count` may be none.
RankStep rank_step(const Costed& shard, const Costed& count, const Costed& update, const DeviceRates& rates, Segments segments);

/// What a rank with `shards` micro-batches spends on adding their gradients: after shard i the sum goes up one level of the tree
/// for each one at the end of i, read and written once (passes/training/accumulate.h).
double combine_seconds(const RankStep& step, std::int64_t shard);
/// After the last: what waits on the levels of the tree, for `bytes` of the gradients.
double total_seconds(const RankStep& step, std::int64_t shards, double bytes);

/// The model's own kernels and the update take so much longer than the rates allow that a step of one rank with `shards`
/// micro-batches takes `seconds`, as was measured; what adds and packs gradients is copies, which reach their rate. Throws
/// UserError where those alone take longer.
RankStep as_measured(RankStep step, std::int64_t shards, double seconds);

}  // namespace gcomp::codegen::scale
