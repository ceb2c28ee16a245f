// The loop of gcomp::fit(): loop_setup.cpp makes it, loop.cpp runs it, loop_failure.cpp leaves it where an error ends it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/fit/decisions.h"
#include "gcomp/driver/fit/kept_batches.h"
#include "gcomp/driver/fit/longer_run.h"
#include "gcomp/driver/fit/remainder.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/driver/schedule.h"
#include "gcomp/fit.h"
#include "runtime/batch_plan.h"

namespace gcomp::driver {

/// The members are what the loop needs, in the order in which they are made.
class FitLoop {
 public:
  /// Checks and compiles everything; goes on from the run directory's checkpoint where it is to. Throws as gcomp::fit().
  FitLoop(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks);
  /// Several ranks: where the first stands, in the run and in its states, all others then stand. Throws UserError where they were
  /// asked for different things.
  void meet();
  FitPlan plan() const;
  /// All steps, or those up to what ends the run before.
  FitResult run();
  /// The same. Throws RankFailed where this rank alone fails.
  FitResult run_with_others();
  /// After run_with_others() threw: a checkpoint of the last good step, where the states are known to be its. All ranks that threw
  /// the same call it.
  FitFailure leave();

 private:
  using Clock = std::chrono::steady_clock;

  // loop_setup.cpp
  void check_options() const;
  void protect_from_run() const;
  void place();
  void settle_order();
  std::int64_t end_of(RunLength length) const;
  void bind_schedule();
  void resume();
  void adopt(const RunState& state);
  std::string facts() const;
  void check_length(RunLength before, std::int64_t done, const std::string& where) const;
  void compile_remainder();

  // loop.cpp
  double rate_of(std::int64_t step) const { return schedule_ ? schedule_->rate(step) : base_rate_; }
  EpochKey key_of(std::int64_t step) const { return {position_.seed, rows_->epoch_of(step)}; }
  bool epoch_ends(std::int64_t step) const { return (step + 1) % rows_->steps_per_epoch() == 0; }
  bool evaluates_after(std::int64_t step) const;
  bool checkpoint_due(std::int64_t step) const;
  bool told(std::int64_t step) const;
  /// Whether the mean loss of each epoch is wanted.
  bool follows_epochs() const { return decisions_.plateau_metric && !options_.eval; }
  FitEnd asked_to_end() const;
  void decide(std::int64_t step);

  void open_loader();
  void close_loader();
  void do_step(std::int64_t step);
  std::span<const std::int64_t> load(std::int64_t step);
  void start(std::int64_t step);
  void take_losses(std::int64_t started, int most_pending);
  void take_loss(std::int64_t step);
  void count_skipped();
  void report_step(std::int64_t step);
  template <class Callback>
  void call(const Callback& callback);
  void check_scale(std::int64_t step, const LossScaleStatus& scale);
  void after_step(std::int64_t step);
  bool settles_after(std::int64_t step) const;
  void evaluate(std::int64_t step, bool regular);
  void evaluate_what_is_due();
  void tell_skipped(const std::vector<SkippedRow>& skipped, std::string_view of);
  void save_best();
  void end_epoch();
  bool keeps_checkpoints() const { return options_.checkpoint_every > 0 || options_.checkpoint_every_seconds > 0; }
  void open_checkpoints();
  void open_checkpoints_of_ranks();
  void checkpoint(std::int64_t step);
  void note(const std::vector<CheckpointEvent>& events);
  bool has_finite_weights() const;
  void check_outcome();
  std::string where(std::int64_t step) const;
  std::string why_not_finite(std::int64_t step);

  // loop_failure.cpp
  bool stands();
  void keep_last_step(FitFailure& left);

  Trainer& trainer_;
  const Dataset& data_;
  const FitOptions& options_;
  const FitCallbacks& callbacks_;
  RunDirectory::Impl* run_;  // null for none
  bool is_kept_ = false;     // in a run directory, of this rank or another
  Ranks ranks_;
  FedArrays fed_;
  DataPosition position_;                       // of the first step
  std::optional<runtime::BatchPlan> rows_;      // of all ranks
  std::optional<runtime::BatchPlan> own_rows_;  // of this one
  std::span<const std::int64_t> loaded_;        // of the next step
  bool time_has_come_ = false;                  // for a checkpoint by time, after this step
  std::optional<KeptBatches> batches_;          // that the loader's workers write
  std::unique_ptr<BatchLoader> loader_;         // while it runs
  double waited_ = 0;                           // for data, up to the step that was told last
  std::optional<RemainderStep> last_rows_;
  bool last_rows_in_place_ = false;               // of the trainer's own step
  std::int64_t begin_ = 0, first_ = 0, end_ = 0;  // steps of the data: where the run begins, this process, and the run ends
  std::optional<Schedule> schedule_;              // none: the same rate throughout
  double base_rate_ = 0;
  Decisions decisions_;
  std::string went_on_, passed_over_;
  std::string facts_;                            // that several ranks compare, as they are before a run goes on
  std::optional<CheckpointWriter> checkpoints_;  // of the run directory, from the first on; of others where they hold shares
  FitResult result_;
  std::int64_t started_steps_ = 0;        // of the data: the last that was started
  std::int64_t checkpointed_steps_ = -1;  // of the data: the last that a checkpoint was taken after
  bool in_step_ = false;                  // an error now leaves states of which nothing is known
  bool leaving_ = false;                  // an error ends it: the caller is told of no more steps
  std::vector<SkippedRow> skipped_in_evaluations_;
  std::vector<double> group_rates_;  // of the step that is reported
  Clock::time_point started_, step_end_, checkpointed_;
};

}  // namespace gcomp::driver
