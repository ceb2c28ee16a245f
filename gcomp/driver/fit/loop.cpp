#include "gcomp/driver/fit/loop.h"

#include <cmath>

#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/fit/run_record.h"
#include "gcomp/driver/fit/run_settings.h"
#include "gcomp/driver/not_a_number.h"
#include "gcomp/driver/opened_data.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Whether the optimizer's divisor may be 0.
bool divides_by_zero(const Trainer& trainer) {
  const Options& options = trainer.impl().options.optimizer.options();
  return options.knows("eps") && options.number("eps") == 0;
}

/// While alive, the trainer takes the step of an epoch's last rows, or its own again while one of these is alive.
class LastRowsInPlace {
 public:
  LastRowsInPlace(RemainderStep& step, Trainer& trainer, bool& in_place) : step_(step), trainer_(trainer), in_place_(in_place) {
    swap();
  }
  ~LastRowsInPlace() {
    trainer_.impl().pending = 0;  // where it threw
    swap();
  }
  LastRowsInPlace(const LastRowsInPlace&) = delete;
  LastRowsInPlace& operator=(const LastRowsInPlace&) = delete;

 private:
  void swap() {
    step_.swap(trainer_);
    in_place_ = !in_place_;
  }

  RemainderStep& step_;
  Trainer& trainer_;
  bool& in_place_;
};

/// While alive, the trainer is one that fit() runs on. Throws UserError where it is already: batches that are read ahead lie in
/// memory of its step.
class InFit {
 public:
  explicit InFit(Trainer& trainer) : trainer_(trainer.impl()) {
    check_user(!trainer_.in_fit,
               "fit: it is running already on this trainer, which called what calls it now, such as FitCallbacks::step; that may "
               "take steps, evaluate and save, and fit another trainer");
    trainer_.in_fit = true;
  }
  ~InFit() { trainer_.in_fit = false; }
  InFit(const InFit&) = delete;
  InFit& operator=(const InFit&) = delete;

 private:
  Trainer::Impl& trainer_;
};

}  // namespace

bool FitLoop::evaluates_after(std::int64_t step) const {
  if (!options_.eval) return false;
  if (step + 1 == end_) return true;
  return options_.eval_every > 0 ? (step + 1) % options_.eval_every == 0 : epoch_ends(step);
}

bool FitLoop::checkpoint_due(std::int64_t step) const {
  return time_has_come_ || (options_.checkpoint_every > 0 && (step + 1) % options_.checkpoint_every == 0);
}

bool FitLoop::told(std::int64_t step) const { return step == begin_ || step + 1 == end_ || (step + 1) % options_.log_every == 0; }

FitEnd FitLoop::asked_to_end() const {
  if (callbacks_.cancelled && callbacks_.cancelled()) return FitEnd::cancelled;
  if (options_.max_seconds > 0 && seconds_between(started_, Clock::now()) >= options_.max_seconds) return FitEnd::max_time;
  return FitEnd::finished;
}

// ---- data ----

/// Workers write batches where the program reads them.
void FitLoop::open_loader() {
  LoaderOptions options{.workers = options_.workers ? static_cast<int>(*options_.workers) : default_workers(data_, fed_),
                        .ahead = static_cast<int>(std::clamp<std::int64_t>(end_ - first_, 1, options_.prefetch)),
                        .on_bad_sample = options_.on_bad_sample,
                        .seed = position_.seed,
                        .first_step = first_,
                        .steps = end_ - first_};
  if (options.workers > 0) {
    const StepPrograms& step = trainer_.impl().step;
    options.held = trainer_.most_pending();
    batches_.emplace(step.reader(), options.ahead + options.held, step.data());
    options.slot_memory = [this](int slot, std::size_t input) { return batches_->input(slot, input); };
  }
  loader_ = std::make_unique<BatchLoader>(data_, fed_, *own_rows_, options);
}

/// `of` is "" or " of the evaluations".
void FitLoop::tell_skipped(const std::vector<SkippedRow>& skipped, std::string_view of) {
  constexpr std::size_t kListed = 20;
  result_.bad_samples += std::ssize(skipped);
  if (!skipped.empty())
    result_.tolerated.push_back(concat(skipped.size(), skipped.size() == 1 ? " row" : " rows", of,
                                       " could not be read, and the next that could stood in:"));
  for (std::size_t i = 0; i < std::min(kListed, skipped.size()); ++i)
    result_.tolerated.push_back(concat("  row ", skipped[i].row, " (row ", skipped[i].instead, " instead): ", skipped[i].reason));
  if (skipped.size() > kListed) result_.tolerated.push_back(concat("  and ", skipped.size() - kListed, " more"));
}

/// Says what the data cost.
void FitLoop::close_loader() {
  result_.data_wait = loader_->waited();
  result_.workers = loader_->workers();
  tell_skipped(loader_->skipped(), "");
  tell_skipped(skipped_in_evaluations_, " of the evaluations");
  loader_.reset();
  batches_.reset();
}

// ---- steps ----

/// The rows of the next run's batch, which is then where that run reads it.
std::span<const std::int64_t> FitLoop::load(std::int64_t step) {
  if (!batches_ || !batches_->belong_to(trainer_.impl().step.reader()))
    return loader_->load(step, [&](std::size_t input) { return trainer_.input(input); });
  const BatchLoader::Taken batch = loader_->take(step);
  batches_->use(batch.slot);
  return batch.rows;
}

/// What ends the run after this step, or has it write a checkpoint, on any of the ranks.
void FitLoop::decide(std::int64_t step) {
  const double every = options_.checkpoint_every_seconds;
  const RankWish wish = ranks_.joined({.end = static_cast<int>(step + 1 < end_ ? asked_to_end() : FitEnd::finished),
                                       .checkpoint = every > 0 && seconds_between(checkpointed_, Clock::now()) >= every});
  result_.end = static_cast<FitEnd>(wish.end);
  time_has_come_ = wish.checkpoint;
}

void FitLoop::start(std::int64_t step) {
  result_.evaluation = {};
  // A rank that cannot read its rows would leave the others waiting for it within the step.
  ranks_.agree([&] { loaded_ = load(step); });
  if (schedule_) trainer_.set_learning_rate(schedule_->rate(step));
  if (schedule_ && schedule_->turns_momentum()) trainer_.set_momentum(schedule_->momentum(step));
  if (decisions_.spikes) set_limits(trainer_, decisions_.spikes->limits());
  in_step_ = true;
  on_rows(
      trainer_, data_, [&] { trainer_.start(); }, [&] { return loaded_; });
  in_step_ = false;
  started_steps_ = step + 1;
}

/// Of the steps up to `started`, so that no more than `most_pending` are.
void FitLoop::take_losses(std::int64_t started, int most_pending) {
  while (trainer_.pending() > most_pending) take_loss(started + 1 - trainer_.pending());
}

void FitLoop::take_loss(std::int64_t step) {
  in_step_ = true;
  result_.loss = without_sign_of_nan(on_rows(
      trainer_, data_, [&] { return trainer_.take_loss(); }, [&] { return own_rows_->rows_of(step); }));
  loader_->release(step);
  result_.steps = step + 1 - first_;
  if (follows_epochs()) decisions_.epoch_loss.add(result_.loss, std::ssize(rows_->rows_of(step)));
  count_skipped();
  if (decisions_.spikes) decisions_.spikes->add(result_.loss, trainer_.gradient_norm().value_or(0));
  const bool is_good = trainer_.skipped() || std::isfinite(result_.loss);
  in_step_ = !is_good;  // what a caller throws leaves a good step as it is
  report_step(step);
  in_step_ = true;
  if (const Optional<LossScaleStatus> scale = trainer_.loss_scale()) check_scale(step, *scale);
  if (!is_good) throw NotFinite(concat(where(step), "the loss is ", result_.loss), why_not_finite(step));
  in_step_ = false;
}

/// Calls what the caller gave, who may save the trainer, and take steps of whole batches: what is saved goes on with the next step.
/// Where no schedule decides the rate, one that is set meanwhile is that of the steps from then on.
template <class Callback>
void FitLoop::call(const Callback& callback) {
  std::optional<LastRowsInPlace> own_step;  // again, after an epoch's last rows
  if (last_rows_in_place_) own_step.emplace(*last_rows_, trainer_, last_rows_in_place_);
  DataPosition position = position_;
  position.steps = std::max(first_, started_steps_);
  trainer_.set_data_position(position);
  trainer_.set_learning_rate(base_rate_);
  if (decisions_.spikes) set_limits(trainer_, {});  // they belong to this loop
  callback();
  if (!schedule_) base_rate_ = trainer_.learning_rate();
}

void FitLoop::count_skipped() {
  if (!trainer_.skipped().value_or(false)) {
    decisions_.skipped_in_a_row = 0;
    return;
  }
  ++result_.skipped;
  ++decisions_.skipped_in_a_row;
  if (decisions_.spikes && std::isfinite(result_.loss) && std::isfinite(trainer_.gradient_norm().value_or(0))) ++result_.spikes;
}

void FitLoop::report_step(std::int64_t step) {
  const double rate = rate_of(step);
  group_rates_.clear();
  for (const ParameterGroup& group : trainer_.groups()) group_rates_.push_back(rate * group.rate);
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(step_end_, now);
  step_end_ = now;
  const double waited = loader_->waited() - std::exchange(waited_, loader_->waited());
  const FitStep report{.step = step + 1,
                       .epoch = rows_->epoch_of(step) + 1,
                       .loss = result_.loss,
                       .learning_rate = rate,
                       .group_rates = group_rates_,
                       .gradient_norm = trainer_.gradient_norm(),
                       .loss_scale = trainer_.loss_scale(),
                       .skipped = trainer_.skipped(),
                       .rows_per_second = seconds > 0 ? static_cast<double>(rows_->rows_of(step).size()) / seconds : 0,
                       .data_wait = waited,
                       .told = told(step)};
  if (run_ && report.told) run_->write_step(report);
  if (!leaving_) call([&] { callbacks_.step(report); });
}

/// A step that overflows is skipped; steps that all do end the run, where the scale says so: below 1 it no longer scales up. A
/// constant one gets the patience that a dynamic one has from its first value on.
void FitLoop::check_scale(std::int64_t step, const LossScaleStatus& scale) {
  constexpr std::int64_t kPatience = 17;
  if (!scale.skipped || (scale.dynamic ? scale.scale >= 1 : decisions_.skipped_in_a_row < kPatience)) return;
  const std::string culprit = find_non_finite(data_, trainer_, rows_->rows_of(step), key_of(step));
  const std::string what =
      scale.dynamic ? concat("the loss scale has fallen to ", scale.scale) : concat("the loss scale is constant, ", scale.scale);
  throw NotFinite(concat(where(step), "gradients were not finite in the last ", decisions_.skipped_in_a_row, " steps, and ", what),
                  culprit.empty() ? "--precision bf16 has the range of float32" : culprit);
}

std::string FitLoop::where(std::int64_t step) const {
  return concat("step ", step + 1, " (epoch ", rows_->epoch_of(step) + 1, "): ");
}

std::string FitLoop::why_not_finite(std::int64_t step) {
  if (std::string culprit = find_non_finite(data_, trainer_, rows_->rows_of(step), key_of(step)); !culprit.empty()) return culprit;
  if (std::string none = find_uncounted(data_, trainer_, rows_->rows_of(step), key_of(step)); !none.empty()) return none;
  if (step == 0 && !std::isfinite(result_.loss))
    return "It is so before anything is trained, whatever --lr: what the model computes from these rows overflows "
           "or is not defined, or its weights are not finite";
  if (divides_by_zero(trainer_)) return "With --eps 0 a parameter whose gradients were all zero is divided by zero";
  return concat("A smaller --lr than ", base_rate_, " often helps");
}

// ---- between steps ----

/// `regular` is one that decides; else one that only tells.
void FitLoop::evaluate(std::int64_t step, bool regular) {
  decisions_.evaluation_due = regular;
  result_.evaluation = driver::evaluate(trainer_, *options_.eval, options_.workers ? static_cast<int>(*options_.workers) : -1,
                                        ranks_, {.policy = options_.on_bad_sample, .skipped = &skipped_in_evaluations_});
  result_.evaluation->loss = without_sign_of_nan(result_.evaluation->loss);
  decisions_.evaluation_due = false;
  const FitEvaluation report{.step = step + 1,
                             .epoch = rows_->epoch_of(step) + 1,
                             .evaluation = *result_.evaluation,
                             .left_out = options_.eval->rows() - result_.evaluation->rows,
                             .best = regular && decisions_.best && decisions_.best->observe(*result_.evaluation)};
  if (report.best) decisions_.best_step = step + 1;
  if (report.best) save_best();
  if (run_) run_->write_evaluation(report, options_.eval->source());
  call([&] { callbacks_.evaluation(report); });
  if (!regular) return;
  if (decisions_.plateau_metric) schedule_->plateau()->observe(decisions_.plateau_metric->value(*result_.evaluation));
  const bool stops = decisions_.early_stop && decisions_.early_stop->observe(*result_.evaluation);
  if (stops && step + 1 < end_ && result_.end == FitEnd::finished) result_.end = FitEnd::early_stop;
}

/// The one that ended the run which this one goes on with.
void FitLoop::evaluate_what_is_due() {
  if (decisions_.evaluation_due && options_.eval) evaluate(first_ - 1, true);
}

void FitLoop::save_best() {
  std::optional<CollectedStates> collected;
  if (ranks_.several()) collected.emplace(trainer_);
  if (run_) run_->save_best(trainer_);
}

/// Without evaluations the loss of the epoch's steps is what plateau follows.
void FitLoop::end_epoch() {
  schedule_->plateau()->observe(decisions_.epoch_loss.mean());
  decisions_.epoch_loss = {};
}

/// Where ranks hold shares of states, all of them write. The first opens before the others, so that what it removes is old.
void FitLoop::open_checkpoints_of_ranks() {
  if (!ranks_.several() || !trainer_.impl().states.any_in_shares()) return;
  ranks_.agree([&] {
    if (run_) open_checkpoints();
  });
  const std::string folder = ranks_.from_first(run_ ? std::filesystem::absolute(run_->checkpoints()).string() : "");
  if (folder.empty()) return;
  ranks_.agree([&] {
    if (!run_) checkpoints_.emplace(CheckpointOptions{.folder = folder, .rank = ranks_.rank(), .ranks = ranks_.size()});
  });
}

void FitLoop::open_checkpoints() {
  const bool in_parts = ranks_.several() && trainer_.impl().states.any_in_shares();
  if (!checkpoints_)
    checkpoints_.emplace(
        CheckpointOptions{.folder = run_->checkpoints(), .keep = options_.keep, .rank = 0, .ranks = in_parts ? ranks_.size() : 1});
}

void FitLoop::checkpoint(std::int64_t step) {
  DataPosition position = position_;
  position.steps = step + 1;
  call([&] { callbacks_.checkpoint(); });
  checkpointed_ = Clock::now();
  checkpointed_steps_ = step + 1;
  if (run_) open_checkpoints();
  if (!checkpoints_) return;
  const RunState state{.step = step + 1 - begin_,
                       .position = position,
                       .schedule = schedule_state(schedule_),
                       .loop = loop_state(decisions_),
                       .config = run_ ? settings_of(run_->config) : "{}",
                       .timed = runtime::to_text(trainer_.impl().device->timed_choices())};
  checkpoints_->write(trainer_, state, decisions_.best_step == step + 1 ? Standing::best : Standing::ordinary);
  if (run_) note(checkpoints_->poll());  // what goes wrong elsewhere the first rank's thread finds
}

void FitLoop::note(const std::vector<CheckpointEvent>& events) {
  for (const CheckpointEvent& event : events) {
    if (!event.failure.empty())
      callbacks_.note(concat("the checkpoint after step ", event.step, " is not written: ", event.failure));
    if (!event.note.empty()) callbacks_.note(event.note);
  }
}

/// A step, and the losses that are due after it.
void FitLoop::do_step(std::int64_t step) {
  if (decisions_.spikes) take_losses(step - 1, 0);  // they decide what is one
  std::optional<LastRowsInPlace> in_place;
  if (last_rows_ && epoch_ends(step)) in_place.emplace(*last_rows_, trainer_, last_rows_in_place_);
  start(step);
  decide(step);
  // A GPU computes this step while the loss of the one before is read.
  take_losses(step, settles_after(step) ? 0 : trainer_.most_pending() - 1);
}

/// Whether something between this step and the next needs its loss, or its weights.
bool FitLoop::settles_after(std::int64_t step) const {
  if (step + 1 == end_ || result_.end != FitEnd::finished || evaluates_after(step) || checkpoint_due(step)) return true;
  if (last_rows_ && (epoch_ends(step) || epoch_ends(step + 1))) return true;
  return follows_epochs() && epoch_ends(step);
}

void FitLoop::after_step(std::int64_t step) {
  bool saves = checkpoint_due(step) || result_.end != FitEnd::finished;
  const bool evaluates = evaluates_after(step), goes_on = is_kept_ || result_.end != FitEnd::cancelled;
  if (evaluates && goes_on) evaluate(step, true);
  else if (options_.eval && result_.end == FitEnd::max_time) evaluate(step, false);
  if (follows_epochs() && epoch_ends(step)) end_epoch();
  if (keeps_checkpoints() && decisions_.best && decisions_.best_step == step + 1) saves = true;
  if (keeps_checkpoints() && step + 1 == end_ && has_finite_weights()) saves = true;
  if (saves) checkpoint(step);
}

FitResult FitLoop::run() {
  started_ = step_end_ = checkpointed_ = Clock::now();
  open_loader();
  open_checkpoints_of_ranks();
  if (run_ && keeps_checkpoints()) open_checkpoints();
  if (checkpoints_ && keeps_checkpoints()) checkpoints_->prepare(trainer_);
  if (first_ == 0) check_outcome();
  evaluate_what_is_due();
  for (std::int64_t step = first_; step < end_ && result_.end == FitEnd::finished; ++step) {
    do_step(step);
    if (trainer_.pending() > 0) continue;
    after_step(step);
    step_end_ = Clock::now();  // an evaluation is no part of a step's time
  }
  result_.seconds = seconds_between(started_, Clock::now());
  close_loader();
  std::int64_t of_all = 0;
  for (const std::string& own : ranks_.gather(std::to_string(result_.bad_samples))) of_all += std::stoll(own);
  result_.bad_samples = of_all;
  if (checkpoints_) {
    const std::vector<CheckpointEvent> events = checkpoints_->finish();
    if (run_) note(events);
  }
  if (run_ && checkpoints_ && !checkpoints_->failures().empty()) result_.tolerated.push_back(checkpoints_->failures());
  position_.steps = first_ + result_.steps;
  trainer_.set_data_position(position_);
  trainer_.set_learning_rate(base_rate_);
  if (decisions_.spikes) set_limits(trainer_, {});
  check_outcome();
  if (decisions_.best && decisions_.best_step > 0) {
    result_.best = decisions_.best->best();
    result_.best_step = decisions_.best_step;
  }
  return std::move(result_);
}

FitResult FitLoop::run_with_others() {
  try {
    return run();
  } catch (const NotFinite&) {
    throw;  // as the sums are, so all ranks find them
  } catch (const Error& error) {
    if (!ranks_.several() || ranks_.have_ended()) throw;
    throw ranks_.failed(error);
  } catch (const std::exception& error) {  // of a data set, or of what the caller gave to be called
    if (!ranks_.several() || ranks_.have_ended()) throw;
    throw ranks_.failed(InternalError(error.what()));
  }
}

bool FitLoop::has_finite_weights() const {
  try {
    trainer_.check_finite();
    return true;
  } catch (const Error&) { return false; }  // check_outcome() says so, or what ends the run is a device's error
}

void FitLoop::check_outcome() {
  try {
    trainer_.check_finite();
  } catch (const UserError& error) {
    if (position_.steps == 0) throw NotFinite(concat("before the first step: ", error.what()), "What is frozen (--freeze) may be");
    throw NotFinite(concat("after step ", position_.steps, ": ", error.what()),
                    result_.steps > 0 ? why_not_finite(position_.steps - 1) : "");
  }
  if (result_.steps == 0 || result_.skipped < result_.steps) return;
  const Optional<LossScaleStatus> scale = trainer_.loss_scale();
  if (scale && first_ > 0) return;  // a scale that grew before is to fall now and then
  std::string why;
  if (scale) {
    const std::int64_t last = position_.steps - 1;
    why = find_non_finite(data_, trainer_, rows_->rows_of(last), key_of(last));
    if (why.empty()) why = concat("The loss scale is ", scale->scale, scale->dynamic ? ": it falls further in more --steps" : "");
  }
  throw NotFinite(concat("all ", result_.steps, " steps were skipped: loss or gradients were not finite"), why);
}

}  // namespace gcomp::driver

namespace gcomp {

FitResult fit(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks) {
  const driver::InFit in_fit(trainer);
  const driver::Ranks ranks = driver::ranks_of(trainer);
  std::optional<driver::FitLoop> made;
  ranks.agree([&] { made.emplace(trainer, data, options, callbacks); });
  driver::FitLoop& loop = *made;
  loop.meet();
  const FitPlan plan = loop.plan();
  callbacks.begin(plan);
  if (options.plan_only) return {};
  std::optional<driver::RunRecord> record;
  if (options.run) record.emplace(*options.run, trainer, data, options, plan);
  FitResult result;
  const auto leave = [&](const char* why, ExitCode code) {
    FitFailure left = loop.leave();
    left.code = code;
    std::optional<driver::CollectedStates> collected;  // for the rank that keeps the run
    if (ranks.several() && left.has_trained()) collected.emplace(trainer);
    if (record) record->fail(trainer, why, left);
    callbacks.failed(left);
  };
  try {
    result = loop.run_with_others();
  } catch (const Error& error) {
    leave(error.what(), error.code());
    throw;
  } catch (const std::exception& error) {
    leave(error.what(), ExitCode::internal);
    throw;
  } catch (...) {
    leave("something was thrown that is no std::exception", ExitCode::internal);
    throw;
  }
  std::optional<driver::CollectedStates> collected;
  if (ranks.several()) collected.emplace(trainer);
  if (record) record->end(trainer, result);
  return result;
}

}  // namespace gcomp
