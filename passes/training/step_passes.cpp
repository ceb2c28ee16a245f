#include "passes/training/step_passes.h"

#include <optional>
#include <utility>

#include "passes/training/average_parameters.h"
#include "passes/training/chunk_loss.h"
#include "passes/training/differentiate.h"
#include "passes/training/distribute.h"

namespace gcomp::passes {
namespace {

using namespace ir;

bool in_shards(const PassContext& c) { return c.training->optimizer && c.training->shards > 1; }

AccumulateOptions accumulate_options(const PassContext& c) {
  return {.shards = c.training->shards,
          .ranks = c.training->ranks,
          .skipped = c.made.scaled.scale || c.training->step.skip_non_finite,
          .in_turns = c.training->ranks > 1 && takes_turns(c.training->sharding)};
}

}  // namespace

bool run_attach_loss(PassContext& c) {
  if (in_shards(c)) {
    ShardLoss loss = attach_shard_loss(c.graph, c.training->loss, c.training->shards, c.training->arrays);
    c.made.loss = loss.share;
    c.made.accumulation.emplace();
    if (auto count = count_graph(c.graph, loss, accumulate_options(c))) {
      c.made.accumulation->count = std::move(count->graph);
      c.made.accumulation->counted = std::move(count->counted);
    }
    c.made.accumulation->averaged = std::move(loss.averaged);
    return true;
  }
  c.made.loss = attach_loss(c.graph, c.training->loss, c.training->arrays);
  return true;
}

bool run_chunk_loss(PassContext& c) {
  Value* whole = c.made.loss;
  c.made.loss = chunk_loss(c.graph, whole, c.training->loss_chunks);
  return c.made.loss != whole;
}

bool run_scale_loss(PassContext& c) {
  c.made.attempts = counters_of(c.graph);  // the optimizer adds one that counts steps done
  const auto& scaling = c.training->scaling;
  c.made.scaled = scaling ? scale_loss(c.graph, c.made.loss, *scaling) : ScaledLoss{nullptr, c.made.loss};
  return scaling.has_value();
}

bool run_differentiate(PassContext& c) {
  if (c.made.parameters.empty()) c.made.parameters = states_named(c.graph, c.training->trained);
  c.made.gradients = differentiate(c.graph, c.made.scaled.scaled, c.made.parameters);
  return true;
}

bool run_accumulate(PassContext& c) {
  if (!in_shards(c)) return false;
  Accumulation& known = *c.made.accumulation;
  Accumulated values{c.made.loss, c.made.gradients};
  Accumulation made = accumulate(c.graph, c.made.parameters, values, accumulate_options(c));
  made.count = std::move(known.count);
  made.counted = std::move(known.counted);
  made.averaged = std::move(known.averaged);
  known = std::move(made);
  c.made.loss = values.loss;
  c.made.gradients = std::move(values.gradients);
  return true;
}

bool run_distribute(PassContext& c) {
  if (!in_shards(c)) return false;
  distribute(c.graph, *c.made.accumulation, c.made.parameters,
             {.ranks = c.training->ranks,
              .shards = c.training->shards,
              .sharding = c.training->sharding,
              .bucket_bytes = c.training->bucket_bytes});
  return true;
}

bool run_unscale(PassContext& c) {
  if (!c.made.scaled.scale) return false;
  c.made.gradients = unscale(c.graph, c.made.gradients, c.made.scaled.scale);
  return true;
}

bool run_clip_gradients(PassContext& c) {
  const StepOptions& step = c.training->step;
  Value*& norm = c.made.report.gradient_norm;
  if (step.has_norm()) norm = gradient_norm(c.graph, c.made.gradients);
  if (!step.clipping.empty()) c.made.gradients = clip_gradients(c.graph, step.clipping, c.made.gradients, norm);
  return step.has_norm() || !step.clipping.empty();
}

bool run_attach_optimizer(PassContext& c) {
  c.made.step = attach_optimizer(c.graph, *c.training->optimizer, c.made.parameters, c.made.gradients, c.training->step.groups);
  return true;
}

bool run_average_parameters(PassContext& c) {
  const std::optional<double> decay = c.training->step.average;
  if (decay) average_parameters(c.graph, *decay, c.made.parameters, c.made.step);
  return decay.has_value();
}

bool run_skip_non_finite(PassContext& c) {
  if (!c.made.scaled.scale && !c.training->step.skip_non_finite) return false;
  StepReport& report = c.made.report;
  const SkipWhen when = c.training->step.skip_spikes ? SkipWhen::beyond_limits : SkipWhen::not_finite;
  const SkipReport skip =
      skip_non_finite(c.graph, c.made.scaled, c.made.loss, c.made.gradients, c.made.attempts, report.gradient_norm, when);
  report.scale = skip.scale;
  report.skipped = skip.skipped;
  return true;
}

bool run_show_loss(PassContext& c) {
  show_loss(c.graph, c.made.loss, c.made.report);
  if (!in_shards(c)) return true;
  c.graph.remove_dead(/*drop_states=*/true);
  c.graph.remove_unused_inputs();
  return true;
}

bool run_show_gradients(PassContext& c) {
  show_gradients(c.graph, c.made.loss, c.made.gradients);
  return true;
}

}  // namespace gcomp::passes
