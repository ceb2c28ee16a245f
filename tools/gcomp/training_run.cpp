#include "tools/gcomp/training_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "data/number_names.h"
#include "gcomp/driver/fit/metric_lines.h"
#include "gcomp/driver/training.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/atomic_file.h"
#include "tools/gcomp/metric_text.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/rescue.h"

namespace gcomp::tools {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // names of folders may be no UTF-8

}  // namespace

std::string TrainingRun::out() const {
  return flags_.out.empty() ? (std::filesystem::path(flags_.run.run_dir) / "last.onnx").string() : flags_.out;
}

FitOptions TrainingRun::fit_options() {
  FitOptions options;
  flags_.run.apply(options);
  flags_.data.apply(options);
  options.epochs = flags_.epochs;
  options.steps = flags_.steps;
  if (flags_.seed_given || !is_artifact(flags_.model)) options.seed = flags_.seed;
  options.shuffle = !flags_.no_shuffle;
  options.schedule = flags_.schedule;
  options.warmup_steps = flags_.warmup_steps;
  options.skip_spikes = flags_.step.skip_spikes.value_or(0);
  if (data_.eval) options.eval = data_.eval.get();
  if (directory_) options.run = &*directory_;
  return options;
}

void TrainingRun::train() {
  FitCallbacks callbacks;
  callbacks.begin = [this](const FitPlan& plan) { begin(plan); };
  callbacks.step = [this](const FitStep& step) { report_step(step); };
  callbacks.evaluation = [this](const FitEvaluation& evaluation) { report_evaluation(evaluation); };
  callbacks.cancelled = [this] { return interrupt_.signal() != 0; };
  callbacks.note = [this](std::string_view text) { console_.say(text); };
  callbacks.failed = [this](const FitFailure& left) { report_failure(left); };
  try {
    result_ = fit(*trainer_, *data_.train, fit_options(), callbacks);
  } catch (const NotFinite& error) {
    if (is_kept_) throw;
    throw UserError(concat(error.where(), "; '", out(), "' is not written", error.advice().empty() ? "" : ". ", error.advice()),
                    error.code());
  }
  if (progress_) progress_->clear();
}

void TrainingRun::begin(const FitPlan& plan) {
  throw_if_interrupted();
  setting_up_ = false;
  console_.clear_status();
  plan_ = plan;
  report(plan);
  if (flags_.run.plan_only) return report_plan(plan);
  keep_names();
  progress_.emplace(console_, plan.steps, flags_.epochs > 0 ? plan.epoch_of(plan.end() - 1) + 1 : 0, plan.batch,
                    flags_.run.log_every.value_or(0), plan.done);
}

/// What numbers of the data stand for is kept beside the run; what an earlier run there had is not.
void TrainingRun::keep_names() const {
  if (!directory_) return;
  const std::filesystem::path folder(directory_->path());
  const auto write = [&](const char* name, std::string_view text) {
    std::error_code none;
    if (text.empty()) std::filesystem::remove(folder / name, none);
    else runtime::write_file(folder / name, std::as_bytes(std::span(text)));
  };
  write("vocab.json", data_.vocabulary);
  write("classes.json", data_.classes.empty() ? "" : nlohmann::json(data_.classes).dump(2, ' ', false, kReplace) + "\n");
  const bool has_names = !data_.number_names.empty();
  write("columns.json", has_names ? data::text_of(data::parse_number_names(data_.number_names).columns) : "");
}

void TrainingRun::report_schedule(const FitPlan& plan) const {
  const std::int64_t first = plan.position.steps, last = plan.end() - 1;
  if (plan.schedule.empty() || first > last) return;
  std::string text = concat("schedule: ", plan.schedule,
                            flags_.warmup_steps > 0 ? concat(" after ", flags_.warmup_steps, " steps of warm-up") : "");
  for (const std::int64_t step : std::set{first, (first + last) / 2, last})
    text += concat(step > first ? ", " : ", learning rate ", plan.rate(step), " at step ", step + 1);
  console_.say(text);
}

void TrainingRun::report(const FitPlan& plan) {
  const bool artifact = is_artifact(flags_.model);
  if (artifact) console_.say(concat("training step of '", flags_.model, "', batches of ", plan.batch));
  else report_parameters(console_, driver::imported_model(*trainer_));
  if (!artifact) report_outputs(console_, driver::imported_model(*trainer_), flags_.loss, trainer_->loss_output());
  report_groups(console_, *trainer_, plan.learning_rate);
  if (trainer_->keeps_average() && !data_.eval && flags_.out_ema.empty() && !is_artifact(flags_.out))
    console_.warn("the average of the parameters is written nowhere: --out-ema FILE writes it");
  console_.say("device: " + trainer_->device());
  const DataPosition& position = plan.position;
  console_.say(concat("data: '", flags_.data.text(), "', ", grouped(data_.train->rows()), " rows, ", plan.steps_per_epoch,
                      " steps an epoch, ", position.shuffled ? concat("shuffled with seed ", position.seed) : "in order"));
  report_schedule(plan);
  if (!plan.went_on.empty()) console_.say(plan.went_on);
  if (!plan.passed_over.empty()) console_.warn(plan.passed_over);
  if (position.steps > 0 && position.steps < plan.end())
    console_.say(concat("goes on after ", grouped(position.steps), " steps: epoch ", plan.epoch_of(position.steps) + 1, ", step ",
                        position.steps % plan.steps_per_epoch + 1, " of ", plan.steps_per_epoch, ", learning rate ",
                        plan.rate(position.steps)));
  if (plan.dropped_rows > 0)
    console_.say(concat("each epoch drops the last ", plan.dropped_rows, plan.dropped_rows == 1 ? " row" : " rows",
                        ", which fill no batch of ", plan.batch));
}

void TrainingRun::report_step(const FitStep& step) {
  if (step.told) metrics_->write(driver::metrics_of_step(step));
  progress_->update({step.step - plan_.position.steps, step.epoch, step.loss});
}

/// What an error leaves; the error itself is said after it.
void TrainingRun::report_failure(const FitFailure& left) {
  progress_->clear();
  for (const std::string& one : left.tolerated) console_.warn(one);
  if (const std::string text = kept_text(left); !text.empty()) console_.error(text);
}

std::string TrainingRun::kept_text(const FitFailure& left) {
  const std::string newest = left.checkpoint.empty() ? "" : concat("the newest checkpoint is '", left.checkpoint, "'");
  if (!left.stands_after)
    return concat("the weights from before the step that failed are no longer there",
                  newest.empty() ? directory_ ? ", and there is no checkpoint (--checkpoint-every keeps some)" : ""
                  : left.code == ExitCode::numeric
                      ? concat("; ", newest, ", whose weights --init takes for another run")
                      : concat("; ", newest, "; once the cause is gone, to go on: ", flags_.resume_command));
  if (!left.has_trained() || !ranks_.is_first()) return "";
  std::vector<std::string> kept;
  if (!left.last.empty()) kept.push_back(left.last);
  for (const auto& [path, weights] : {std::pair(flags_.out, Weights::trained), std::pair(flags_.out_ema, Weights::averaged)})
    if (!path.empty()) try {
        kept.push_back(
            save_somewhere(*trainer_, path, weights, kept.empty() ? newest : concat("'", kept.front(), "' is whole")).path);
      } catch (const Error& error) { console_.warn(error.what()); }
  is_kept_ = !kept.empty();
  if (!is_kept_) return newest;
  return concat("an error ends the run after step ", plan_.done + left.steps, " of ", plan_.steps,
                "; what was trained up to there is in ", listing(kept),
                left.checkpoint.empty() ? "" : concat("; once the cause is gone, to go on: ", flags_.resume_command));
}

void TrainingRun::report_evaluation(const FitEvaluation& evaluation) {
  if (evaluation.left_out > 0)
    console_.say(concat("evaluation leaves out the last ", evaluation.left_out, " rows, which fill no batch"));
  const std::string source = flags_.data.evaluated();  // the fields refer to it
  std::vector<runtime::Metric> fields = driver::metrics_of_evaluation(evaluation, source);
  if (flags_.run.eval_every > 0) fields.insert(fields.begin() + 1, {"step", evaluation.step});
  metrics_->write(fields);
  progress_->clear();
  char text[128];
  std::snprintf(text, sizeof text, "%lld: test loss %.6g",
                static_cast<long long>(flags_.run.eval_every > 0 ? evaluation.step : evaluation.epoch), evaluation.evaluation.loss);
  std::string line = concat(flags_.run.eval_every > 0 ? "step " : "epoch ", text);
  for (const std::string& metric : metric_lines(evaluation.evaluation))
    if (metric.find('\n') == metric.npos) line += ", " + metric;
  if (evaluation.best) line += ", the best so far";
  console_.say(line);
}

}  // namespace gcomp::tools
