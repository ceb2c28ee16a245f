// The states of a training as its user knows them, whole, whoever holds what of them: of several ranks each may hold a share
// (passes/training/share_updates.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/communicator.h"
#include "passes/training/sharded_state.h"
#include "runtime/state_memory.h"

namespace gcomp::driver {

class WholeStates {
 public:
  WholeStates() = default;
  /// `sharded` are those of the programs that `memory` is bound to. One process alone has none, and no communicator.
  WholeStates(std::shared_ptr<runtime::StateMemory> memory, std::vector<passes::ShardedState> sharded, Communicator* communicator,
              passes::Sharding sharding = passes::Sharding::none);

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  /// Shares have the names of the wholes that they are of, and their types.
  std::vector<runtime::StateEntry> entries() const;
  bool contains(std::string_view name) const;
  /// Throws UserError naming the nearest state where there is none of this name.
  runtime::StateEntry entry(std::string_view name) const;
  /// How a state lies of which no rank has all; null for others.
  const passes::ShardedState* shares_of(std::string_view name) const;
  bool any_in_shares() const;

  /// All ranks call this at the same time where shares_of() is not null, unless the state was collected.
  Tensor read(std::string_view name) const;
  /// Each rank takes its share, and the whole where it has that. Throws as StateMemory::write().
  void write(std::string_view name, const Tensor& value);
  /// Names of states that have no initial value and that nobody has written.
  std::vector<std::string> unwritten() const;

  /// Copies what the ranks hold of these into states of their own names, which programs have bound that take them whole; of others
  /// nothing. All ranks call this at the same time.
  void gather_copies(std::span<const std::string> names);

  /// Has the first rank keep these in host memory, so that it can read() them alone, until forget(): nothing may change them
  /// meanwhile. All ranks call this at the same time.
  void collect(std::span<const std::string> names);
  void forget() { collected_.clear(); }

 private:
  const passes::ShardedState* sharded(std::string_view name) const;
  /// Those of which a state of this name has a rank's: one, or with owners one of each rank at most.
  std::vector<const passes::ShardedState*> held_in(std::string_view own) const;
  Tensor gathered(const passes::ShardedState& one) const;
  void write_share(const passes::ShardedState& one, const Tensor& whole);

  std::shared_ptr<runtime::StateMemory> memory_;
  std::vector<passes::ShardedState> sharded_;  // those that outlive a step
  Communicator* communicator_ = nullptr;
  passes::Sharding sharding_ = passes::Sharding::none;
  std::map<std::string, Tensor, std::less<>> collected_;
};

}  // namespace gcomp::driver
