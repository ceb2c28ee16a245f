#include "gcomp/driver/fit/loop.h"

#include <cmath>

#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw UserError(message, ExitCode::usage); }

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Whether the optimizer's divisor may be 0.
bool divides_by_zero(const Trainer& trainer) {
  const Options& options = trainer.impl().options.optimizer.options();
  return options.knows("eps") && options.number("eps") == 0;
}

}  // namespace

FitLoop::FitLoop(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks)
    : trainer_(trainer), data_(data), options_(options), callbacks_(callbacks), feeder_(data, trainer) {
  if ((options.epochs > 0) == (options.steps > 0) || options.epochs < 0 || options.steps < 0)
    refuse("give either --epochs N or --steps N, at least 1");
  if (options.warmup_steps < 0) refuse("--warmup-steps: wanted 0 or more");
  if (options.eval_every < 0) refuse("--eval-every: wanted 1 or more");
  if (options.eval_every > 0 && !options.eval) refuse(concat("--eval-every ", options.eval_every, ": there is no --eval-data"));
  if (trainer.pending() > 0) refuse(concat("fit: the losses of ", trainer.pending(), " steps are to be taken first"));
  if (options.eval) eval_rows_.emplace(*options.eval, trainer);
  if (options.eval) trainer.prepare_evaluation();
  place();
  bind_schedule();
}

/// Where in the data the first step is.
void FitLoop::place() {
  const DataPosition before = trainer_.data_position();
  position_ = before;
  if (before.steps == 0) {
    position_.shuffled = options_.shuffle;
    if (options_.seed) position_.seed = *options_.seed;
  } else {
    if (options_.seed && *options_.seed != before.seed)
      refuse(concat("--seed ", *options_.seed, ": the training did ", before.steps, " steps with seed ", before.seed,
                    " and goes on with it; leave --seed out"));
    if (!options_.shuffle && before.shuffled)
      refuse(concat("--no-shuffle: the training did ", before.steps, " steps on shuffled rows and goes on so; leave it out"));
  }
  position_.rows = data_.rows();
  if (before.steps > 0 && before.rows != data_.rows()) {
    position_.steps = 0;
    callbacks_.note(concat("the model was trained on ", before.rows, " rows, '", data_.source(), "' has ", data_.rows(),
                           ": its rows are gone through from the start"));
  }
  rows_.emplace(data_.rows(), trainer_.batch(), position_.seed,
                position_.shuffled ? runtime::RowOrder::shuffled : runtime::RowOrder::sequential);
  steps_ = options_.steps > 0 ? options_.steps : options_.epochs * rows_->steps_per_epoch();
}

/// Steps count from the start of the data, as the schedule's do, so that a run that goes on goes on in its schedule too.
void FitLoop::bind_schedule() {
  base_rate_ = trainer_.learning_rate();
  if (!options_.schedule.empty() || options_.warmup_steps > 0)
    schedule_.emplace(options_.schedule.empty() ? "constant" : options_.schedule);
  const bool turns = schedule_ && schedule_->turns_momentum();
  if (trainer_.takes_momentum() && !turns)
    refuse("the training step was compiled for a schedule that turns the momentum; give it, such as --schedule one_cycle");
  if (!trainer_.takes_momentum() && turns)
    refuse(concat("--schedule ", options_.schedule,
                  ": the training step was compiled for a momentum that stays; cycle_momentum=false leaves it"));
  if (schedule_) schedule_->bind({base_rate_, position_.steps + steps_, options_.warmup_steps});
}

FitPlan FitLoop::plan() const {
  return {.position = position_,
          .steps = steps_,
          .batch = rows_->batch(),
          .steps_per_epoch = rows_->steps_per_epoch(),
          .dropped_rows = rows_->dropped_rows(),
          .schedule = schedule_ ? schedule_->text() : "",
          .learning_rate = base_rate_,
          .rate = [schedule = schedule_, base = base_rate_](std::int64_t step) { return schedule ? schedule->rate(step) : base; }};
}

bool FitLoop::evaluates_after(std::int64_t step) const {
  if (!eval_rows_) return false;
  if (step + 1 == position_.steps + steps_) return true;
  return (step + 1) % (options_.eval_every > 0 ? options_.eval_every : rows_->steps_per_epoch()) == 0;
}

bool FitLoop::checkpoint_due(std::int64_t step) const {
  if (options_.checkpoint_every > 0 && (step + 1) % options_.checkpoint_every == 0) return true;
  const double every = options_.checkpoint_every_seconds;
  return every > 0 && seconds_between(checkpointed_, Clock::now()) >= every;
}

// ---- steps ----

void FitLoop::start(std::int64_t step) {
  result_.evaluation = {};
  const std::span<const std::int64_t> rows = rows_->rows_of(step);
  feeder_.load(rows);
  if (schedule_) trainer_.set_learning_rate(schedule_->rate(step));
  if (schedule_ && schedule_->turns_momentum()) trainer_.set_momentum(schedule_->momentum(step));
  on_rows(
      trainer_, data_, [&] { trainer_.start(); }, [&] { return rows; });
}

/// Of the steps up to `started`, so that no more than `most_pending` are.
void FitLoop::take_losses(std::int64_t started, int most_pending) {
  while (trainer_.pending() > most_pending) take_loss(started + 1 - trainer_.pending());
}

void FitLoop::take_loss(std::int64_t step) {
  result_.loss = on_rows(
      trainer_, data_, [&] { return trainer_.take_loss(); }, [&] { return rows_->rows_of(step); });
  result_.steps = step + 1 - position_.steps;
  const Optional<bool> skipped = trainer_.skipped();
  result_.skipped += skipped.value_or(false);
  skipped_in_a_row_ = skipped.value_or(false) ? skipped_in_a_row_ + 1 : 0;
  report_step(step);
  if (const Optional<LossScaleStatus> scale = trainer_.loss_scale()) check_scale(step, *scale);
  if (!skipped && !std::isfinite(result_.loss))
    throw NotFinite(concat(where(step), "the loss is ", result_.loss), why_not_finite(step));
}

void FitLoop::report_step(std::int64_t step) {
  const double rate = rate_of(step);
  group_rates_.clear();
  for (const ParameterGroup& group : trainer_.groups()) group_rates_.push_back(rate * group.rate);
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(step_end_, now);
  step_end_ = now;
  callbacks_.step({.step = step + 1,
                   .epoch = rows_->epoch_of(step) + 1,
                   .loss = result_.loss,
                   .learning_rate = rate,
                   .group_rates = group_rates_,
                   .gradient_norm = trainer_.gradient_norm(),
                   .loss_scale = trainer_.loss_scale(),
                   .skipped = trainer_.skipped(),
                   .rows_per_second = seconds > 0 ? static_cast<double>(rows_->batch()) / seconds : 0});
}

/// A step that overflows is skipped; steps that all do end the run, where the scale says so: below 1 it no longer scales up. A
/// constant one gets the patience that a dynamic one has from its first value on.
void FitLoop::check_scale(std::int64_t step, const LossScaleStatus& scale) {
  constexpr std::int64_t kPatience = 17;
  if (!scale.skipped || (scale.dynamic ? scale.scale >= 1 : skipped_in_a_row_ < kPatience)) return;
  const std::string culprit = find_non_finite(data_, trainer_, rows_->rows_of(step));
  const std::string what =
      scale.dynamic ? concat("the loss scale has fallen to ", scale.scale) : concat("the loss scale is constant, ", scale.scale);
  throw NotFinite(concat(where(step), "gradients were not finite in the last ", skipped_in_a_row_, " steps, and ", what),
                  culprit.empty() ? "--precision bf16 has the range of float32" : culprit);
}

std::string FitLoop::where(std::int64_t step) const {
  return concat("step ", step + 1, " (epoch ", rows_->epoch_of(step) + 1, "): ");
}

std::string FitLoop::why_not_finite(std::int64_t step) {
  if (std::string culprit = find_non_finite(data_, trainer_, rows_->rows_of(step)); !culprit.empty()) return culprit;
  if (divides_by_zero(trainer_)) return "With --eps 0 a parameter whose gradients were all zero is divided by zero";
  return concat("A smaller --lr than ", base_rate_, " often helps");
}

// ---- between steps ----

void FitLoop::evaluate(std::int64_t step) {
  result_.evaluation = trainer_.evaluate(eval_rows_->batch());
  callbacks_.evaluation({.step = step + 1,
                         .epoch = rows_->epoch_of(step) + 1,
                         .evaluation = *result_.evaluation,
                         .left_out = eval_rows_->rows() - result_.evaluation->rows});
}

void FitLoop::checkpoint(std::int64_t step) {
  DataPosition position = position_;
  position.steps = step + 1;
  trainer_.set_data_position(position);
  callbacks_.checkpoint();
  checkpointed_ = Clock::now();
}

FitResult FitLoop::run() {
  const std::int64_t first = position_.steps, end = first + steps_;
  begin_ = step_end_ = checkpointed_ = Clock::now();
  for (std::int64_t step = first; step < end && !result_.cancelled; ++step) {
    start(step);
    const bool last = step + 1 == end;
    result_.cancelled = !last && cancelled();
    const bool evaluates = !result_.cancelled && evaluates_after(step), saves = checkpoint_due(step);
    // A GPU computes this step while the loss of the one before is read.
    take_losses(step, last || result_.cancelled || evaluates || saves ? 0 : trainer_.most_pending() - 1);
    if (evaluates) evaluate(step);
    if (saves) checkpoint(step);
  }
  result_.seconds = seconds_between(begin_, Clock::now());
  position_.steps += result_.steps;
  trainer_.set_data_position(position_);
  trainer_.set_learning_rate(base_rate_);
  check_outcome();
  return std::move(result_);
}

void FitLoop::check_outcome() {
  try {
    trainer_.check_finite();
  } catch (const UserError& error) { throw NotFinite(concat("after step ", position_.steps, ": ", error.what()), ""); }
  if (result_.steps > 0 && result_.skipped == result_.steps && !trainer_.loss_scale())
    throw NotFinite(concat("all ", result_.steps, " steps were skipped: loss or gradients were not finite"), "");
}

}  // namespace gcomp::driver

namespace gcomp {

FitResult fit(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks) {
  driver::FitLoop loop(trainer, data, options, callbacks);
  callbacks.begin(loop.plan());
  return loop.run();
}

}  // namespace gcomp
