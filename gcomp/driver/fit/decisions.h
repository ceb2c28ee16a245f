// What a training has seen and what follows from it: all that its loop remembers beside the trainer, so that a checkpoint keeps it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gcomp/driver/fit/followed_metric.h"
#include "gcomp/driver/fit/spike_filter.h"
#include "gcomp/driver/schedule.h"
#include "gcomp/fit.h"

namespace gcomp::driver {

/// The mean over the rows of an epoch, as far as it is gone.
struct EpochLoss {
  double sum = 0;
  std::int64_t rows = 0;

  void add(double loss, std::int64_t of_rows) {
    sum += loss * static_cast<double>(of_rows);
    rows += of_rows;
  }
  double mean() const { return rows > 0 ? sum / static_cast<double>(rows) : 0; }
};

struct Decisions {
  std::optional<EarlyStop> early_stop;
  std::optional<BestValue> best;
  std::int64_t best_step = 0;
  std::optional<FollowedMetric> plateau_metric;
  std::optional<SpikeFilter> spikes;
  EpochLoss epoch_loss;
  std::int64_t skipped_in_a_row = 0;
  bool evaluation_due = false;  ///< after the last step: it could not be done

  /// What the options ask for; plateau learns which values of its metric are better. `metrics` are those of the evaluations; none
  /// without any. Of several ranks only one keeps files. Throws UserError (exit 2).
  static Decisions of(const FitOptions& options, std::optional<Schedule>& schedule, std::span<const std::string> metrics,
                      bool keeps_files);
};

/// As JSON, for checkpoints; "null" for a schedule that has no state. What is not finite is null there.
std::string schedule_state(const std::optional<Schedule>& schedule);
void set_schedule_state(std::optional<Schedule>& schedule, const std::string& json);
std::string loop_state(const Decisions& decisions);
/// This and set_schedule_state() throw UserError where the text is not what the other one writes.
void set_loop_state(Decisions& decisions, const std::string& json);

}  // namespace gcomp::driver
