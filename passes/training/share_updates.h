// Several ranks share what a step does once: each updates its share of every parameter, and holds that share of the optimizer's
// states alone (ZeRO, Rajbhandari et al., 2020, stage 1).
//
//   %n  = mul %w.gradient, %rates                     %n  = mul %w.gradient.own, %rates'             : f32[share]
//   %w1 = sub %w, %n                                  %w1 = sub %w.own, %n
//   update %w, %w1                                    update %w.own, %w1
//   %s  = square_sums %w.gradient, %v.gradient        %p  = square_sums %w.gradient.own, %v.gradient {parts=S/N}
//                                                     %s  = reshape (all_gather %p {ranks=N})
//
// So it is where all that reads or makes a parameter, its gradient and its states goes element by element, but for extremes over
// all elements and the squares of a norm. Of a rule that looks at whole parameters (muon, lamb, adafactor, ...) each rank does all
// for some of them (owned_updates.h); gradients and parameters are in shares still. A share is S/N parts of S equal ones
// (ir/bucket.h), so that one process with as many shards adds squares in the order in which any number of ranks does.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "passes/training/sharded_state.h"

namespace gcomp::passes {

struct ShareOptions {
  std::int64_t ranks = 1;
  std::int64_t shards = 1;                             ///< of a batch; the ranks divide them
  bool sharded = true;                                 ///< false: every rank updates all, and squares alone are put in order
  std::int64_t bucket_bytes = std::int64_t{32} << 20;  ///< about what one exchange holds
};

/// Of the rest of a step (passes/training/accumulate.h). Gives the states of which the graph now has the rank's share: parameters,
/// gradients, and states of the optimizer; none with one rank.
std::vector<ShardedState> share_updates(ir::Graph& graph, const std::vector<ir::Value*>& parameters, const ShareOptions& options);

}  // namespace gcomp::passes
