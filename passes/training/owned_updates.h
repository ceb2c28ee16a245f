// Rules that look at whole parameters (muon, lamb, adafactor, ...), shared by ranks: each updates some parameters and holds the
// optimizer's states of these alone. All ranks run one program, so what is done for one of N like parameters is there once, and
// rank r does it for parameter r of the N:
//
//   %i            = bucket %w0.own, %w0.gradient.own, %w1.own, %w1.gradient.own, ...      this rank's share of all N
//   %w, %g        = unbucket (all_to_all %i)                                              all of one of them
//   %m            = muon's of %g, %w0.momentum_buffer.own                                 a state of the whole parameter's type
//   %o            = bucket (sub %w, %m) {rows=N}
//   %v0, %v1, ... = unbucket (all_to_all %o)            update %w0.own, %v0  ...          this rank's share of all N again
//
// One process does for each parameter what an owner does for its own. Sums over a parameter have an order that is up to the kernels
// that they become part of, so what is done for one is between barriers (ir/ops/structure.h): its kernels are the same whoever does
// it, and beside whatever else.
//
// Parameters are alike where all that is done for them is, with the same types and numbers. Where fewer than N are left, the ranks
// behind them compute on zeros, which nobody reads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "ir/graph.h"
#include "passes/training/sharded_state.h"
#include "passes/training/update_groups.h"

namespace gcomp::passes {

struct OwnOptions {
  std::int64_t ranks = 1;         ///< that own parameters; 1 where each updates all
  std::int64_t shards = 1;        ///< of a batch; the ranks divide them
  std::int64_t bucket_bytes = 0;  ///< about what one exchange holds
};

/// What an owner does for one parameter.
struct OwnedMember {
  std::vector<ir::Value*> roots;  ///< the parameter, then what holds its gradient: each rank has a share of them
  std::vector<ir::State> states;  ///< of the optimizer
  std::vector<ir::Node*> nodes;
};
/// Members that are alike, one for each rank at most.
using OwnedStack = std::vector<OwnedMember>;

struct StateUpdate {
  ir::Value *state, *value;
  SharedText origin;
};

class OwnedUpdates {
 public:
  /// Of the groups that Division::owner divides, in the order of their parameters. The graph's nodes stay where they are.
  OwnedUpdates(ir::Graph& graph, const UpdateGroups& groups, const std::vector<ir::Value*>& parameters, const OwnOptions& options);

  /// Adds the states of which each rank has those of one parameter of several; `replace(before, made)` hears of each. Throws
  /// UserError where the model has a state of such a name.
  std::vector<ShardedState> add_states(const std::function<void(ir::Value*, ir::Value*)>& replace);

  /// Appends all that owners do, and gives the updates that come of it. `now(value)` is what stands for a value that none of them
  /// computes, and for a root the rank's share of it.
  std::vector<StateUpdate> build(const std::function<ir::Value*(ir::Value*)>& now) const;

 private:
  ir::Graph& graph_;
  const UpdateGroups& groups_;
  OwnOptions options_;
  std::vector<OwnedStack> stacks_;
  std::map<const ir::Value*, ir::Value*> slots_;  // by states of first members
};

}  // namespace gcomp::passes
