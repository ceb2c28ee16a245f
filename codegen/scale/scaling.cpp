#include "codegen/scale/scaling.h"

#include <limits>

#include "ir/base/error.h"

namespace gcomp::codegen::scale {
namespace {

constexpr double kNothing = 1e-9, kWorthAWord = 1e-3;

ScalePoint measure(const RankStep& step, Scaling scaling, std::int64_t micro_batches, std::int64_t ranks,
                   const ExchangeOptions& options) {
  const bool strong = scaling == Scaling::strong;
  check_internal(!strong || micro_batches % ranks == 0, ranks, " ranks do not divide ", micro_batches, " micro-batches");
  ScalePoint point;
  point.ranks = ranks;
  point.shards = strong ? micro_batches / ranks : micro_batches;
  point.times = simulate(step, ranks, point.shards, options);
  point.one = simulate(step, 1, micro_batches, options);
  point.efficiency = point.one.seconds / point.times.seconds / (strong ? static_cast<double>(ranks) : 1);
  return point;
}

/// The step and its links without one thing that costs time.
struct Without {
  std::string_view what;
  void (*remove)(RankStep& step, ExchangeOptions& options);
};

void take_latency(LinkRate& link) { link.latency = 0; }
void take_bytes(LinkRate& link) { link.bytes_per_second /= kNothing; }

constexpr Without kWithout[] = {
    {"latency",
     [](RankStep&, ExchangeOptions& options) {
       take_latency(options.links.near);
       if (options.links.far) take_latency(*options.links.far);
     }},
    {"bandwidth",
     [](RankStep&, ExchangeOptions& options) {
       take_bytes(options.links.near);
       if (options.links.far) take_bytes(*options.links.far);
     }},
    {"adding and packing",
     [](RankStep& step, ExchangeOptions&) {
       step.copy_bytes /= kNothing;
       step.launch = 0;
     }},
    {"the update", [](RankStep& step, ExchangeOptions&) { step.update *= kNothing; }},
};

}  // namespace

ScalePoint scale_point(const RankStep& step, Scaling scaling, std::int64_t micro_batches, std::int64_t ranks,
                       const ExchangeOptions& options) {
  ScalePoint point = measure(step, scaling, micro_batches, ranks, options);
  point.limit_cost = kWorthAWord;
  for (const Without& without : kWithout) {
    RankStep changed = step;
    ExchangeOptions changed_options = options;
    without.remove(changed, changed_options);
    const double gain = measure(changed, scaling, micro_batches, ranks, changed_options).efficiency - point.efficiency;
    if (gain <= point.limit_cost) continue;
    point.limit = without.what;
    point.limit_cost = gain;
  }
  if (point.limit.empty()) point.limit_cost = 0;
  return point;
}

}  // namespace gcomp::codegen::scale
