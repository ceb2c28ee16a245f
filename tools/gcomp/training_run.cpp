#include "tools/gcomp/training_run.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "ir/base/units.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/metric_text.h"
#include "tools/gcomp/progress.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/rescue.h"

namespace gcomp::tools {

namespace {

/// Whether the optimizer's divisor may be 0.
bool divides_by_zero(const OptimizerOptions& flags) {
  const Options options = flags.parse().options();
  return options.knows("eps") && options.number("eps") == 0;
}

}  // namespace

std::string TrainingRun::where_loss_went(std::int64_t step, double loss, std::span<const std::int64_t> rows) const {
  std::string cause = find_non_finite(*data_, names_, rows);
  if (cause.empty() && divides_by_zero(flags_.optimizer))
    cause = "With --eps 0 a parameter whose gradients were all zero is divided by zero";
  if (cause.empty()) cause = concat("A smaller --lr than ", schedule_ ? base_rate_ : trainer_->learning_rate(), " often helps");
  return concat("step ", step + 1, " (epoch ", plan_->epoch_of(step) + 1, "): the loss is ", loss, "; '", flags_.out,
                "' is not written. ", cause);
}

void TrainingRun::start(std::int64_t step) {
  evaluation_.reset();
  const std::span<const std::int64_t> rows = plan_->rows_of(step);
  feeder_->load(rows);
  if (schedule_) trainer_->set_learning_rate(schedule_->rate(step));
  if (schedule_ && schedule_->turns_momentum()) trainer_->set_momentum(schedule_->momentum(step));
  on_rows(
      *trainer_, *data_, [&] { trainer_->start(); }, [&] { return rows; });
}

void TrainingRun::take_loss(std::int64_t step) {
  loss_ = on_rows(
      *trainer_, *data_, [&] { return trainer_->take_loss(); }, [&] { return plan_->rows_of(step); });
  write_metrics(step);
  const Optional<bool> skipped = trainer_->skipped();
  skipped_ += skipped.value_or(false);
  skipped_in_a_row_ = skipped.value_or(false) ? skipped_in_a_row_ + 1 : 0;
  if (const Optional<LossScaleStatus> scale = trainer_->loss_scale()) check_scale(step, *scale);
  if (!skipped && !std::isfinite(loss_)) throw UserError(where_loss_went(step, loss_, plan_->rows_of(step)), ExitCode::numeric);
}

void TrainingRun::write_metrics(std::int64_t step) {
  const double rate = rate_of(step);
  std::vector<runtime::Metric> metric{{"step", step + 1}, {"epoch", plan_->epoch_of(step) + 1}, {"loss", loss_}, {"lr", rate}};
  group_rates_.clear();
  for (const ParameterGroup& group : trainer_->groups()) group_rates_.push_back(rate * group.rate);
  if (!group_rates_.empty()) metric.emplace_back("lr_groups", std::span<const double>(group_rates_));
  if (const Optional<double> norm = trainer_->gradient_norm()) metric.emplace_back("gradient_norm", *norm);
  if (const Optional<LossScaleStatus> scale = trainer_->loss_scale()) metric.emplace_back("loss_scale", scale->scale);
  if (const Optional<bool> skipped = trainer_->skipped()) metric.emplace_back("skipped", std::int64_t{*skipped});
  metrics_->write(metric);
}

/// A step that overflows is skipped; steps that all do end the run, where the scale says so: below 1 it no longer scales up. A
/// constant one gets the patience that a dynamic one has from its first value on.
void TrainingRun::check_scale(std::int64_t step, const LossScaleStatus& scale) {
  constexpr std::int64_t kPatience = 17;
  if (!scale.skipped || (scale.dynamic ? scale.scale >= 1 : skipped_in_a_row_ < kPatience)) return;
  const std::string culprit = find_non_finite(*data_, names_, plan_->rows_of(step));
  const std::string what =
      scale.dynamic ? concat("the loss scale has fallen to ", scale.scale) : concat("the loss scale is constant, ", scale.scale);
  throw UserError(concat("step ", step + 1, " (epoch ", plan_->epoch_of(step) + 1, "): gradients were not finite in the last ",
                         skipped_in_a_row_, " steps, and ", what, "; '", flags_.out, "' is not written. ",
                         culprit.empty() ? "--precision bf16 has the range of float32" : culprit),
                  ExitCode::numeric);
}

void TrainingRun::evaluate(std::int64_t epoch) {
  evaluation_ = trainer_->evaluate(whole(*eval_data_, names_));
  if (evaluation_->rows < eval_data_->rows())
    console_.say(concat("evaluation leaves out the last ", eval_data_->rows() - evaluation_->rows, " rows, which fill no batch"));
  std::vector<runtime::Metric> metric{{"eval", std::string_view(flags_.eval_data)}, {"epoch", epoch}, {"loss", evaluation_->loss}};
  if (evaluation_->accuracy) metric.emplace_back("accuracy", *evaluation_->accuracy);
  for (const auto& [name, value] : evaluation_->metrics) {
    if (name == "accuracy") continue;
    if (value.shape().empty()) metric.emplace_back(name, value.at(0));
    else metric.emplace_back(name, &value);
  }
  metrics_->write(metric);
}

/// Steps are numbered from the start of the data, which may lie in an earlier run.
void TrainingRun::train() {
  const std::int64_t first = position_.steps, end = first + steps_;
  Progress progress(console_, steps_, flags_.epochs > 0 ? plan_->epoch_of(end - 1) + 1 : 0, plan_->batch());
  bool interrupted = false;
  for (std::int64_t step = first; step < end && !interrupted; ++step) {
    start(step);
    const bool last = step + 1 == end, epoch_ends = (step + 1) % plan_->steps_per_epoch() == 0;
    interrupted = interrupt_.signal() != 0 && !last;
    const bool pause = interrupted || last || (eval_data_ && epoch_ends);
    // A GPU computes this step while the loss of the one before is read.
    while (trainer_->pending() > (pause ? 0 : trainer_->most_pending() - 1)) {
      const std::int64_t done = step + 1 - trainer_->pending();
      take_loss(done);
      taken_ = done + 1 - first;
      progress.update({taken_, plan_->epoch_of(done) + 1, loss_});
    }
    if (interrupted || !eval_data_ || (!last && !epoch_ends)) continue;
    evaluate(plan_->epoch_of(step) + 1);
    progress.clear();
    char text[128];
    std::snprintf(text, sizeof text, "epoch %lld: test loss %.6g", static_cast<long long>(plan_->epoch_of(step) + 1),
                  evaluation_->loss);
    std::string line = text;
    for (const std::string& metric : metric_lines(*evaluation_))
      if (metric.find('\n') == metric.npos) line += ", " + metric;
    console_.say(line);
  }
  progress.clear();
  seconds_ = progress.seconds();
}

std::string TrainingRun::skipped_text() const {
  const std::string count = concat(skipped_, skipped_ == 1 ? " step was" : " steps were", " skipped: ");
  if (const Optional<LossScaleStatus> scale = trainer_->loss_scale())
    return concat(count, "gradients overflowed f16, loss scale ", scale->scale);
  return concat(count, "loss or gradients were not finite");
}

void TrainingRun::print_results(const std::string& out, const std::string& digest) const {
  char text[160];
  std::snprintf(text, sizeof text, ", last loss %.9g", loss_);
  console_.result(concat("trained ", taken_, taken_ == 1 ? " step in " : " steps in ", time_text(seconds_), " (",
                         rows_rate_text(static_cast<double>(taken_ * plan_->batch()) / seconds_), ")", text));
  console_.result(concat("wrote '", out, "', seed ", position_.seed, ", weights ", digest.substr(0, 16)));
  if (skipped_ > 0) console_.result(skipped_text());
  if (!evaluation_) return;
  for (const std::string& metric : metric_lines(*evaluation_)) console_.result(metric);
}

nlohmann::json TrainingRun::results(const std::string& out, const std::string& digest) const {
  nlohmann::json json{{"out", out},
                      {"steps", taken_},
                      {"loss", loss_},
                      {"seconds", seconds_},
                      {"seed", position_.seed},
                      {"weights_sha256", digest},
                      {"dropped_rows", plan_->dropped_rows()}};
  if (trainer_->skipped()) json["skipped_steps"] = skipped_;
  if (!evaluation_) return json;
  json["eval"] = {{"data", flags_.eval_data}, {"loss", evaluation_->loss}, {"rows", evaluation_->rows}};
  add_metrics(json["eval"], *evaluation_);
  return json;
}

void TrainingRun::finish() {
  const bool interrupted = taken_ < steps_;
  try {
    trainer_->check_finite();
  } catch (const UserError& error) {
    throw UserError(concat("after step ", position_.steps + taken_, ": ", error.what(), "; '", flags_.out, "' is not written"),
                    error.code());
  }
  if (taken_ > 0 && skipped_ == taken_ && !trainer_->loss_scale())
    throw UserError(
        concat("all ", taken_, " steps were skipped: loss or gradients were not finite; '", flags_.out, "' is not written"),
        ExitCode::numeric);
  position_.steps += taken_;
  trainer_->set_data_position(position_);
  if (schedule_) trainer_->set_learning_rate(base_rate_);
  const std::string digest = trainer_->weights_digest();
  const SavedModelFile saved = save_somewhere(*trainer_, flags_.out);
  std::optional<SavedModelFile> averaged;
  if (!flags_.out_ema.empty()) averaged = save_somewhere(*trainer_, flags_.out_ema, Weights::averaged);
  const SavedModelFile adapter = flags_.lora.save(*trainer_);
  if (!flags_.training && !is_artifact(saved.path))
    report_forms(console_, saved.path, driver::imported_model(*trainer_).forms.training,
                 "written in inference form (--training keeps them as in training)");
  print_results(saved.path, digest);
  if (averaged) console_.result(concat("wrote '", averaged->path, "', the average of the parameters"));
  if (!adapter.path.empty() && adapter.failure.empty()) console_.result(concat("wrote '", adapter.path, "', the adapters"));

  std::string problem;
  int code = static_cast<int>(saved.code);
  const auto add = [&](const std::string& text, int exit_code) {
    problem += (problem.empty() ? "" : "; ") + text;
    if (code == 0) code = exit_code;
  };
  if (interrupted)
    problem = concat("interrupted by ", name_of_signal(interrupt_.signal()), " after step ", taken_, " of ", steps_,
                     saved.failure.empty() ? concat("; '", saved.path, "' is the model as trained so far") : "");
  if (!saved.failure.empty()) add(concat(saved.failure, "; what was trained is in '", saved.path, "'"), code);
  if (averaged && !averaged->failure.empty())
    add(concat(averaged->failure, "; the average is in '", averaged->path, "'"), static_cast<int>(averaged->code));
  if (!adapter.failure.empty()) add(adapter.failure, static_cast<int>(adapter.code));
  if (interrupted && code == 0) code = exit_code_of_signal(interrupt_.signal());
  if (!metrics_->failure().empty())
    add(concat(metrics_->failure(), ": --metrics ends before the run",
               saved.failure.empty() ? concat("; '", saved.path, "' is whole") : ""),
        static_cast<int>(ExitCode::invalid));
  nlohmann::json json = results(saved.path, digest);
  if (averaged) json["out_ema"] = averaged->path;
  if (!adapter.path.empty() && adapter.failure.empty()) json["out_adapter"] = adapter.path;
  if (interrupted) json["interrupted"] = name_of_signal(interrupt_.signal());
  if (code == 0) return console_.result_json(std::move(json));
  throw Unfinished{problem, code, std::make_shared<const nlohmann::json>(std::move(json))};
}

}  // namespace gcomp::tools
