// Learning rate schedules: what the rate of step i is, by a pure function of i; of plateau, by what was observed before. Names,
// formulas and options are PyTorch's, for inverse_sqrt and warmup_stable_decay those of the Hugging Face library.
//
//   cosine              step(step_size=30, gamma=0.1)              one_cycle(max_lr=0.1, cycle_momentum=false)
//
// A new one is a block of schedule.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gcomp/driver/plateau.h"
#include "ir/base/definition.h"

namespace gcomp::driver {

/// For help texts and documents.
std::span<const Definition* const> schedule_definitions();

/// What a schedule is bound to.
struct ScheduledRun {
  double learning_rate = 0;       ///< the base rate
  std::int64_t steps = 0;         ///< of the whole run: what lengths default to, less the warm-up
  std::int64_t warmup_steps = 0;  ///< the rate of step i of these is learning_rate (i + 1) / warmup_steps; then the schedule starts
};

class Schedule {
 public:
  /// NAME or NAME(option=value, ...). Throws UserError (exit 2), beginning with `what`, with the nearest name and the place.
  explicit Schedule(std::string_view text, std::string_view what = "--schedule");

  /// Whether a momentum (or first beta) comes with each rate.
  bool turns_momentum() const;
  std::string text() const { return options_.text(); }

  /// To be called before those below. Throws UserError (exit 2) where the options do not fit the run.
  void bind(const ScheduledRun& run);
  /// Of step `step`, from 0; of plateau, of the next one, whatever its number after the warm-up.
  double rate(std::int64_t step) const;
  /// Where turns_momentum().
  double momentum(std::int64_t step) const;

  /// What observes and has a state, of the schedule that follows a metric; null for others.
  Plateau* plateau() { return plateau_ ? &*plateau_ : nullptr; }
  const Plateau* plateau() const { return plateau_ ? &*plateau_ : nullptr; }

 private:
  Options options_;
  std::string what_;
  ScheduledRun run_;
  std::optional<Plateau> plateau_;
};

}  // namespace gcomp::driver
