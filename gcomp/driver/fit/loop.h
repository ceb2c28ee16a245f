// The loop of gcomp::fit().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "gcomp/driver/fit/batch_feeder.h"
#include "gcomp/driver/schedule.h"
#include "gcomp/fit.h"
#include "runtime/batch_plan.h"

namespace gcomp::driver {

/// The members are what the loop needs, in the order in which they are made.
class FitLoop {
 public:
  /// Checks and compiles everything. Throws as gcomp::fit().
  FitLoop(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks);
  FitPlan plan() const;
  /// All steps, or those up to a cancellation.
  FitResult run();

 private:
  using Clock = std::chrono::steady_clock;

  void place();
  void bind_schedule();
  double rate_of(std::int64_t step) const { return schedule_ ? schedule_->rate(step) : base_rate_; }
  bool cancelled() const { return callbacks_.cancelled && callbacks_.cancelled(); }
  bool evaluates_after(std::int64_t step) const;
  bool checkpoint_due(std::int64_t step) const;

  void start(std::int64_t step);
  void take_losses(std::int64_t started, int most_pending);
  void take_loss(std::int64_t step);
  void report_step(std::int64_t step);
  void check_scale(std::int64_t step, const LossScaleStatus& scale);
  void evaluate(std::int64_t step);
  void checkpoint(std::int64_t step);
  void check_outcome();
  std::string where(std::int64_t step) const;
  std::string why_not_finite(std::int64_t step);

  Trainer& trainer_;
  const Dataset& data_;
  const FitOptions& options_;
  const FitCallbacks& callbacks_;
  BatchFeeder feeder_;
  std::optional<EvaluationRows> eval_rows_;
  DataPosition position_;  // of the first step
  std::optional<runtime::BatchPlan> rows_;
  std::int64_t steps_ = 0;            // of this run
  std::optional<Schedule> schedule_;  // none: the same rate throughout
  double base_rate_ = 0;
  FitResult result_;
  std::int64_t skipped_in_a_row_ = 0;
  std::vector<double> group_rates_;  // of the step that is reported
  Clock::time_point begin_, step_end_, checkpointed_;
};

}  // namespace gcomp::driver
