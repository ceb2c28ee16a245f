// The whole of a training, as gcomp train does it: rows in their order, the rate by its schedule, evaluations, and what is to be
// said of each step.
//
//   const auto data = gcomp::dataset_of({{"x", pixels}, {"label", digits}});
//   gcomp::FitResult result = gcomp::fit(trainer, *data, {.epochs = 20, .schedule = "cosine"}, {.step = [](const gcomp::FitStep& s)
//   {
//     std::printf("%lld %g\n", static_cast<long long>(s.step), s.loss);
//   }});
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
#include "gcomp/trainer.h"

namespace gcomp {

struct FitOptions {
  std::int64_t epochs = 0;  ///< how often to go through the data; or
  std::int64_t steps = 0;   ///< how many steps to take
  /// Of the order of rows; without it the trainer's own (TrainOptions::graph.seed, or the run that it goes on with).
  Optional<std::uint64_t> seed = {};
  bool shuffle = true;                  ///< false: step i of an epoch takes rows i * batch onwards
  std::string schedule = {};            ///< "cosine", "step(step_size=30)"; "" for the same rate throughout
  std::int64_t warmup_steps = 0;        ///< in which the rate rises, before the schedule starts
  const Dataset* eval = nullptr;        ///< evaluated after every epoch and at the end; null for none
  std::int64_t eval_every = 0;          ///< or after so many steps, counted from the start of the data
  std::int64_t checkpoint_every = 0;    ///< steps between calls of FitCallbacks::checkpoint, counted so too; 0 for none
  double checkpoint_every_seconds = 0;  ///< or a time; 0 for none
};

/// What is settled before the first step.
struct FitPlan {
  DataPosition position;   ///< of the first step
  std::int64_t steps = 0;  ///< of this run
  std::int64_t batch = 0;  ///< rows of a step
  std::int64_t steps_per_epoch = 0;
  std::int64_t dropped_rows = 0;             ///< of each epoch: its last, which fill no batch
  std::string schedule;                      ///< with all its options; "" for none
  double learning_rate = 0;                  ///< the base rate
  Function<double(std::int64_t step)> rate;  ///< of a step of the data, from 0, as far as it can be told before the run

  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch; }  ///< both from 0
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
};

struct FitEvaluation {
  std::int64_t step = 0, epoch = 0;  ///< steps done, and the epoch of the last
  const Evaluation& evaluation;
  std::int64_t left_out = 0;  ///< rows that fill no batch and were not evaluated
};

/// Everything may be empty. They are called between steps, by the thread that called fit(); what they throw ends it.
struct FitCallbacks {
  /// Everything is checked and compiled, nothing has run.
  Function<void(const FitPlan&)> begin = {};
  Function<void(const FitStep&)> step = {};
  Function<void(const FitEvaluation&)> evaluation = {};
  /// No step is pending, and Trainer::data_position() says where the training stands: what is saved now goes on with the next step.
  Function<void()> checkpoint = {};
  /// Whether to end after the step that runs.
  Function<bool()> cancelled = {};
  /// What was tolerated, said once: a sentence.
  Function<void(std::string_view)> note = {};
};

struct FitResult {
  std::int64_t steps = 0;  ///< done
  double loss = 0;         ///< of the last
  double seconds = 0;
  std::int64_t skipped = 0;         ///< steps that changed nothing
  bool cancelled = false;           ///< ended before its last step, since it was asked to
  Optional<Evaluation> evaluation;  ///< of the weights as they are, or none
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
/// Throws UserError for options that do not fit, NotFinite, and what the callbacks throw.
FitResult fit(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks = {});

}  // namespace gcomp
