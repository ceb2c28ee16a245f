// The whole of a training, as gcomp train does it: rows in their order, the rate by its schedule, evaluations, checkpoints, and
// what is to be said of each step.
//
//   const auto data = gcomp::dataset_of({{"x", pixels}, {"label", digits}});
//   gcomp::FitOptions options{.epochs = 20, .schedule = "cosine"};
//   gcomp::FitCallbacks callbacks{.step = [](const gcomp::FitStep& s) { std::printf("%g\n", s.loss); }};
//   gcomp::FitResult result = gcomp::fit(trainer, *data, options, callbacks);
//
// Nothing here prints. Options are called as those of the command are, and messages call them so: --schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/dataset.h"
#include "gcomp/error.h"
#include "gcomp/evaluation.h"
#include "gcomp/function.h"
#include "gcomp/optional.h"
#include "gcomp/run_directory.h"
#include "gcomp/trainer.h"

namespace gcomp {

/// What becomes of a row that cannot be read.
enum class BadSample : std::uint8_t {
  stop,  ///< the run ends at its step
  skip,  ///< the next row of the data that can be read stands in for it; FitResult counts them
};

struct FitOptions {
  std::int64_t epochs = 0;  ///< how often to go through the data; or
  std::int64_t steps = 0;   ///< how many steps to take
  /// Of the order of rows; without it the trainer's own (TrainOptions::graph.seed, or the run that it goes on with).
  Optional<std::uint64_t> seed = {};
  bool shuffle = true;    ///< false: step i of an epoch takes rows i * batch onwards
  bool drop_last = true;  ///< false: the last rows of an epoch, which fill no batch, are a smaller step of their own
  /// "balanced(array=label)" or "weighted(weights=ARRAY)": rows are drawn with replacement; "" for each row once an epoch.
  std::string sample = {};
  /// Weights of Dataset::parts(), whose rows then come in these shares; none for all rows alike.
  std::vector<double> mix = {};
  std::string schedule = {};      ///< "cosine", "step(step_size=30)"; "" for the same rate throughout
  std::int64_t warmup_steps = 0;  ///< in which the rate rises, before the schedule starts
  double skip_spikes = 0;         ///< pass over steps so many deviations off, 0 for none; TrainOptions::skip_spikes compiles it

  /// Threads that read batches ahead: none for data in memory, else as many as there are processors, where no number is given. 0:
  /// the thread that calls fit() reads. The steps are the same for any number.
  Optional<std::int64_t> workers = {};
  std::int64_t prefetch = 4;  ///< batches that workers are ahead
  BadSample on_bad_sample = BadSample::stop;

  const Dataset* eval = nullptr;  ///< evaluated after every epoch and at the end; null for none
  std::int64_t eval_every = 0;    ///< or after so many steps, counted from the start of the data
  std::string early_stop = {};    ///< "METRIC:N": after N evaluations without improvement; METRIC is loss, or one of the trainer's
  std::string save_best = {};     ///< a metric: the run directory's best.onnx
  double max_seconds = 0;         ///< ends after the step in which they have passed; 0 for no end

  RunDirectory* run = nullptr;          ///< takes what the training tells and its weights; null for none
  std::int64_t log_every = 1;           ///< steps between those that are told
  std::int64_t checkpoint_every = 0;    ///< steps between checkpoints, counted from the start of the data; 0 for none
  double checkpoint_every_seconds = 0;  ///< or a time; 0 for none
  std::int64_t keep = 3;                ///< so many checkpoints of the run directory stay, and the best; 0 for all
  bool plan_only = false;               ///< everything is checked, FitCallbacks::begin called, and nothing run or written
};

/// What is settled before the first step.
struct FitPlan {
  DataPosition position;   ///< of the first step
  std::int64_t steps = 0;  ///< of the run
  std::int64_t done = 0;   ///< of these, by the process that it goes on with
  std::int64_t batch = 0;  ///< rows of a step
  std::int64_t steps_per_epoch = 0;
  std::int64_t dropped_rows = 0;             ///< of each epoch: its last, which fill no batch
  std::string schedule;                      ///< as it was given; "" for none
  double learning_rate = 0;                  ///< the base rate
  std::string went_on;                       ///< what a run that goes on goes on from; "" for a new one
  std::string passed_over;                   ///< why it does not go on from a newer checkpoint; "" where it does
  Function<double(std::int64_t step)> rate;  ///< of a step of the data, from 0, as far as it can be told before the run

  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch; }  ///< both from 0
  std::int64_t end() const { return position.steps - done + steps; }  ///< steps of the data, with those before the run
};

/// A step that is done. Steps and epochs count from 1, from the start of the data.
struct FitStep {
  std::int64_t step = 0, epoch = 0;
  double loss = 0;                       ///< before the step
  double learning_rate = 0;              ///< the base rate of the step
  std::span<const double> group_rates;   ///< those of the parameter groups
  Optional<double> gradient_norm;        ///< where it is computed
  Optional<LossScaleStatus> loss_scale;  ///< in f16
  Optional<bool> skipped;                ///< where steps may be
  double rows_per_second = 0;            ///< since the step before
  double data_wait = 0;                  ///< seconds of these in which the training waited for its batch
  bool told = true;                      ///< FitOptions::log_every has it written
};

struct FitEvaluation {
  std::int64_t step = 0, epoch = 0;  ///< steps done, and the epoch of the last
  const Evaluation& evaluation;
  std::int64_t left_out = 0;  ///< rows that fill no batch and were not evaluated
  bool best = false;          ///< so far, by FitOptions::save_best
};

/// What an error that ends a training leaves.
struct FitFailure {
  std::int64_t steps = 0;  ///< done by this call
  /// Steps of the data after which the trainer stands: what was trained up to them is whole. None where an error within a step, or
  /// a loss that was not finite, leaves weights that are not known to be good.
  Optional<std::int64_t> stands_after;
  std::string last;                    ///< the weights in the run directory; "" where this call wrote none
  std::string checkpoint;              ///< the newest in the run directory; "" where there is none
  std::vector<std::string> tolerated;  ///< as FitResult's, and what could not be written
  ExitCode code = ExitCode::internal;  ///< of the error, where it is one of gcomp's

  /// Whether there is anything to keep.
  bool has_trained() const { return stands_after && steps > 0; }
};

/// Everything may be empty. They are called between steps, by the thread that called fit(); what they throw, of whatever type, ends
/// it, and the steps before are kept. Trainer::data_position() and the base rate are those that a training goes on with, so what
/// step, evaluation and checkpoint save goes on with the next step; where no schedule decides it, a rate that one of them sets
/// holds from then on. They may take steps, evaluate and fit another trainer; fit() of this one throws UserError, and it stays
/// where it is: neither moved nor assigned to.
struct FitCallbacks {
  /// Everything is checked and compiled, nothing has run.
  Function<void(const FitPlan&)> begin = {};
  Function<void(const FitStep&)> step = {};
  Function<void(const FitEvaluation&)> evaluation = {};
  /// When FitOptions asks for a checkpoint. No step is pending.
  Function<void()> checkpoint = {};
  /// Whether to end after the step that runs.
  Function<bool()> cancelled = {};
  /// What was tolerated, said once: a sentence.
  Function<void(std::string_view)> note = {};
  /// An error ends the training; after this, fit() throws it.
  Function<void(const FitFailure&)> failed = {};
};

/// Why a training ended.
enum class FitEnd : std::uint8_t { finished, cancelled, early_stop, max_time };

struct FitResult {
  std::int64_t steps = 0;  ///< done by this call
  double loss = 0;         ///< of the last
  double seconds = 0;
  FitEnd end = FitEnd::finished;
  std::int64_t skipped = 0;            ///< steps that changed nothing
  std::int64_t spikes = 0;             ///< of these, those that FitOptions::skip_spikes passed over
  double data_wait = 0;                ///< seconds in which the training waited for batches
  std::int64_t workers = 0;            ///< that read them
  std::int64_t bad_samples = 0;        ///< times that FitOptions::on_bad_sample passed over a row
  Optional<Evaluation> evaluation;     ///< of the weights as they are, or none
  Optional<double> best;               ///< value of FitOptions::save_best
  std::int64_t best_step = 0;          ///< steps that had been done then
  std::vector<std::string> tolerated;  ///< what went wrong beside the training, such as a file that could not be written
  std::string last;                    ///< the weights in the run directory; "" where there are none
  std::string last_failure;            ///< why not, where they could not be written
};

/// A loss, or the gradients of many steps, were not finite (exit 8).
class NotFinite : public UserError {
 public:
  NotFinite(std::string where, std::string advice)
      : UserError(where + (advice.empty() ? "" : ". " + advice), ExitCode::numeric),
        where_(static_cast<std::string&&>(where)),
        advice_(static_cast<std::string&&>(advice)) {}
  const std::string& where() const { return where_; }    ///< "step 3 (epoch 1): the loss is nan"
  const std::string& advice() const { return advice_; }  ///< the cause where it is known, else what often helps; or ""

 private:
  std::string where_, advice_;
};

/// Trains. The trainer then stands after the last step: data_position() says so, and the learning rate is the base rate again.
/// Throws UserError for options that do not fit, NotFinite, and what the callbacks throw. Where an Error comes between two steps,
/// as from a row that cannot be read, the run directory gets a checkpoint and the weights of the steps before it.
FitResult fit(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks = {});

}  // namespace gcomp
