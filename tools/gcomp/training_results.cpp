#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/format.h"
#include "gcomp/driver/checkpoint_folder.h"
#include "gcomp/driver/training.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "runtime/cpu/thread_pool.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/metric_text.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/rescue.h"
#include "tools/gcomp/training_run.h"

namespace gcomp::tools {
std::string TrainingRun::skipped_text() const {
  const std::string count = concat(result_.skipped, result_.skipped == 1 ? " step was" : " steps were", " skipped: ");
  if (result_.spikes > 0)
    return concat(count, result_.spikes, " by --skip-spikes, ", result_.skipped - result_.spikes,
                  " since loss or gradients were not finite");
  if (const Optional<LossScaleStatus> scale = trainer_->loss_scale())
    return concat(count, "gradients overflowed f16, loss scale ", scale->scale);
  return concat(count, "loss or gradients were not finite");
}

namespace {

std::string wrote(const SavedModelFile& saved) {
  return concat("wrote '", saved.path, "'",
                saved.beside.empty() ? "" : concat(" and beside it its larger weights, '", saved.beside, "'"));
}

}  // namespace

void TrainingRun::print_results(const SavedModelFile& saved, const std::string& digest) const {
  char text[160];
  std::snprintf(text, sizeof text, ", last loss %.9g", result_.loss);
  if (result_.steps == 0) console_.result(concat("all ", plan_.steps, " steps were done before"));
  else
    console_.result(concat("trained ", result_.steps, result_.steps == 1 ? " step in " : " steps in ", time_text(result_.seconds),
                           " (", rows_rate_text(static_cast<double>(result_.steps * plan_.batch) / result_.seconds), ")", text));
  console_.result(concat(wrote(saved), ", seed ", plan_.position.seed, ", weights ", digest.substr(0, 16)));
  say_what_happened();
  if (!result_.evaluation) return;
  for (const std::string& metric : metric_lines(*result_.evaluation)) console_.result(metric);
}

namespace {

/// Whether files of images are decoded for each row.
bool decodes_images(const std::string& data) {
  try {
    const std::string_view format = data::parse_spec(data).format->definition.name;
    return format == "images" || format == "tar";
  } catch (const UserError&) { return false; }  // it is there no more
}

/// What may make reading faster: more threads where processors are left for them, images that are decoded before. "" for rows that
/// lie in memory, which are only copied.
std::string help_with_reading(const Dataset& data, std::int64_t workers, const std::vector<std::string>& texts) {
  if (data.is_in_memory()) return "";
  const std::int64_t most = data.thread_safe() ? runtime::cpu::available_processors() : 1;
  std::string help;
  if (workers < most) help = concat("--workers ", std::min(most, std::max<std::int64_t>(2, 2 * workers)), " may help");
  if (std::ranges::any_of(texts, decodes_images))
    help += concat(help.empty() ? "" : ", or ", "gcomp data convert decodes and resizes once");
  return help;
}

}  // namespace

/// Where it is worth a word.
void TrainingRun::report_data_wait() const {
  constexpr double kMentioned = 0.05, kTooSlow = 0.2;
  const double share = result_.seconds > 0 ? result_.data_wait / result_.seconds : 0;
  if (share < kMentioned) return;
  std::string text = concat(
      "waited for data: ", time_text(result_.data_wait), " of ", time_text(result_.seconds), " (",
      static_cast<int>(100 * share + 0.5), " %), read by ",
      result_.workers == 0 ? "the training's own thread" : concat(result_.workers, result_.workers == 1 ? " worker" : " workers"));
  if (const std::string help = share >= kTooSlow ? help_with_reading(*data_.train, result_.workers, flags_.data.request.data) : "";
      !help.empty())
    text += concat("; reading is slower than the steps: ", help);
  console_.say(text);
}

/// Of the first rank.
void TrainingRun::report_exchanges() const {
  if (!opened_.timed) return;
  const runtime::comm::ExchangeTimes& times = opened_.timed->times();
  console_.result(concat("exchanges: ", times.calls, ", ", size_text(times.bytes), " received, moved in ",
                         time_text(times.moved_seconds), "; waited ", time_text(times.waited_seconds), " for other ranks"));
}

/// What was skipped, dropped or tolerated, and why the run ended before its last step.
void TrainingRun::say_what_happened() const {
  const std::int64_t done = plan_.done + result_.steps;
  if (result_.end == FitEnd::early_stop)
    console_.result(concat("stopped early after step ", done, " of ", plan_.steps, ": --early-stop ", flags_.run.early_stop));
  if (result_.end == FitEnd::max_time)
    console_.result(concat("stopped after step ", done, " of ", plan_.steps, ": --max-time ", flags_.run.max_time, " has passed"));
  if (result_.best) console_.result(concat("best ", flags_.run.save_best, " ", *result_.best, " after step ", result_.best_step));
  if (result_.skipped > 0) console_.result(skipped_text());
  report_data_wait();
  report_exchanges();
  if (plan_.dropped_rows > 0 && directory_)
    console_.result(concat("each epoch dropped ", plan_.dropped_rows, plan_.dropped_rows == 1 ? " row" : " rows"));
  for (const std::string& one : result_.tolerated) console_.warn(one);
  if (!result_.last_failure.empty()) console_.warn(result_.last_failure);
}

nlohmann::json TrainingRun::results(const std::string& out, const std::string& digest) const {
  nlohmann::json json{{"out", out},
                      {"steps", result_.steps},
                      {"loss", result_.loss},
                      {"seconds", result_.seconds},
                      {"seed", plan_.position.seed},
                      {"weights_sha256", digest},
                      {"dropped_rows", plan_.dropped_rows},
                      {"data_wait_seconds", result_.data_wait},
                      {"workers", result_.workers}};
  if (result_.bad_samples > 0) json["bad_samples"] = result_.bad_samples;
  if (trainer_->skipped()) json["skipped_steps"] = result_.skipped;
  if (opened_.timed) {
    const runtime::comm::ExchangeTimes& times = opened_.timed->times();
    json["exchanges"] = {{"calls", times.calls},
                         {"bytes", times.bytes},
                         {"waited_seconds", times.waited_seconds},
                         {"moved_seconds", times.moved_seconds}};
  }
  if (directory_) json["run_dir"] = flags_.run.run_dir;
  if (result_.best) json["best"] = {{"value", *result_.best}, {"step", result_.best_step}};
  if (result_.end == FitEnd::early_stop) json["stopped"] = "early_stop";
  if (result_.end == FitEnd::max_time) json["stopped"] = "max_time";
  if (!result_.evaluation) return json;
  json["eval"] = {{"data", flags_.data.evaluated()}, {"loss", result_.evaluation->loss}, {"rows", result_.evaluation->rows}};
  add_metrics(json["eval"], *result_.evaluation);
  return json;
}

void TrainingRun::finish() {
  if (!ranks_.several()) return write_results();
  // The first has written when the others end, and all give its exit code.
  const driver::CollectedStates collected(*trainer_);
  std::optional<Unfinished> unfinished;
  int code = 0;
  ranks_.agree([&] {
    if (!ranks_.is_first()) return;
    try {
      write_results();
    } catch (const Unfinished& thrown) {
      unfinished = thrown;
      code = thrown.exit_code;
    }
  });
  code = std::stoi(ranks_.from_first(std::to_string(code)));
  if (unfinished) throw *unfinished;
  if (code != 0) throw Unfinished{"", code, nullptr};
}

/// What there is of the training where no place takes the model; "" for nothing.
std::string TrainingRun::left_text() const {
  if (!result_.last.empty()) return concat("what was trained is in '", result_.last, "'");
  if (!directory_) return "";
  const std::vector<driver::StepFolder> checkpoints =
      driver::step_folders(std::filesystem::path(directory_->path()) / "checkpoints");
  return checkpoints.empty() ? ""
                             : concat("the newest checkpoint is '", checkpoints.front().path.string(),
                                      "'; gcomp convert makes an .onnx of it, or once the cause is gone: ", flags_.resume_command);
}

void TrainingRun::write_results() {
  const std::string digest = trainer_->weights_digest();
  SavedModelFile saved{.path = result_.last, .beside = driver::written_beside(*trainer_), .failure = {}};
  if (!flags_.out.empty() || result_.last.empty()) saved = save_somewhere(*trainer_, out(), Weights::trained, left_text());
  std::optional<SavedModelFile> averaged;
  if (!flags_.out_ema.empty())
    averaged = save_somewhere(*trainer_, flags_.out_ema, Weights::averaged, concat("'", saved.path, "' is whole"));
  const SavedModelFile adapter = flags_.lora.save(*trainer_);
  if (!flags_.training && !is_artifact(saved.path))
    report_forms(console_, saved.path, driver::imported_model(*trainer_).forms.training,
                 "written in inference form (--training keeps them as in training)");
  print_results(saved, digest);
  if (averaged) console_.result(concat(wrote(*averaged), ", the average of the parameters"));
  if (!adapter.path.empty() && adapter.failure.empty()) console_.result(concat("wrote '", adapter.path, "', the adapters"));

  std::string problem;
  int code = static_cast<int>(saved.code);
  const auto add = [&](const std::string& text, int exit_code) {
    problem += (problem.empty() ? "" : "; ") + text;
    if (code == 0) code = exit_code;
  };
  const bool interrupted = result_.end == FitEnd::cancelled;
  if (interrupted)
    problem = concat("interrupted by ", name_of_signal(signal()), " after step ", plan_.done + result_.steps, " of ", plan_.steps,
                     saved.failure.empty() ? concat("; '", saved.path, "' is the model as trained so far") : "",
                     directory_ ? concat("; to go on: ", flags_.resume_command) : "");
  if (!saved.failure.empty()) add(concat(saved.failure, "; what was trained is in '", saved.path, "'"), code);
  if (averaged && !averaged->failure.empty())
    add(concat(averaged->failure, "; the average is in '", averaged->path, "'"), static_cast<int>(averaged->code));
  if (!adapter.failure.empty()) add(adapter.failure, static_cast<int>(adapter.code));
  if (interrupted && code == 0) code = directory_ ? kExitToResume : exit_code_of_signal(signal());
  if (!metrics_->failure().empty())
    add(concat(metrics_->failure(), ": --metrics ends before the run",
               saved.failure.empty() ? concat("; '", saved.path, "' is whole") : ""),
        static_cast<int>(ExitCode::invalid));
  nlohmann::json json = results(saved.path, digest);
  if (!saved.beside.empty()) json["out_data"] = saved.beside;
  if (averaged) json["out_ema"] = averaged->path;
  if (!adapter.path.empty() && adapter.failure.empty()) json["out_adapter"] = adapter.path;
  if (interrupted) json["interrupted"] = name_of_signal(signal());
  if (code == 0) return console_.result_json(std::move(json));
  throw Unfinished{problem, code, std::make_shared<const nlohmann::json>(std::move(json))};
}

}  // namespace gcomp::tools
