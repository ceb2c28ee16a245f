// The ranks of a training, as its loop sees them: what all have to know, and what goes wrong on one.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/communicator.h"
#include "gcomp/driver/step_programs.h"
#include "gcomp/error.h"
#include "gcomp/trainer.h"
#include "passes/training/sharded_state.h"

namespace gcomp::driver {

/// What a rank is asked for between two steps.
struct RankWish {
  int end = 0;  ///< a FitEnd
  bool checkpoint = false;
};

/// One of them, or a process that trains alone, for which nothing here does anything. All ranks call the same in the same order.
class Ranks {
 public:
  explicit Ranks(Communicator* communicator) : communicator_(communicator) {}

  int size() const { return communicator_ ? communicator_->size() : 1; }
  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  bool several() const { return size() > 1; }
  bool is_first() const { return rank() == 0; }

  /// A text of each rank, by rank.
  std::vector<std::string> gather(const std::string& text) const;
  /// The text of the first rank.
  std::string from_first(const std::string& text) const;

  /// Does the work on each rank. Where it threw an Error on any, all of them throw that of the first of these: as it was where all
  /// threw it, else with the rank that did: "rank 2 of 4 (host): ...".
  void agree(const std::function<void()>& work) const;
  /// Whether agree() has thrown: the other ranks have ended too.
  bool have_ended() const { return ended_; }
  /// What this rank throws where it fails and the others do not know of it.
  RankFailed failed(const Error& error) const;
  /// The first end that a rank is asked for, and whether any is to write a checkpoint.
  RankWish joined(const RankWish& own) const;

  /// `facts` is a JSON object of what all ranks must have alike. Throws UserError, on all, with the first that differs, the rank
  /// and both values.
  void require_same(const std::string& facts) const;

 private:
  Communicator* communicator_;
  mutable bool ended_ = false;
  mutable std::vector<RankWish> wishes_;  // memory of joined()
};

Ranks ranks_of(const Trainer& trainer);

/// Of the device's communicator; a process that has none trains alone.
RankOf rank_of(const runtime::DeviceOptions& options, passes::Sharding sharding = passes::Sharding::none);

/// Before programs are loaded on the device: where ways to compute products are timed, the first rank does `time`, which has the
/// device do that and exchanges nothing, and the others will compute as it does. All ranks call this at the same time. Throws
/// UserError where they time differently: another kind of GPU, driver or library, or no timing.
void share_choices(runtime::Device& device, Communicator* communicator, const std::function<void()>& time);

/// Every state that a training keeps, from the first rank to the others, after it was restored there.
void share_states(const Ranks& ranks, Trainer& trainer);

}  // namespace gcomp::driver
