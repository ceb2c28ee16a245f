#include "tools/gcomp/fit_flags.h"

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"
#include "tools/command_line/numbers.h"
#include "tools/gcomp/options.h"

namespace gcomp::tools {
namespace {

[[noreturn]] void refuse_run(const std::string& message) { throw UserError(message, ExitCode::usage); }

}  // namespace

double parse_duration(std::string_view text, const std::string& flag) {
  constexpr std::pair<char, double> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  double number = 0;
  for (const auto& [letter, seconds] : kUnits) {
    if (!text.ends_with(letter) || !read_number(std::string(text.substr(0, text.size() - 1)), number).empty()) continue;
    if (number > 0 && std::isfinite(number)) return number * seconds;
  }
  refuse_run(concat(flag, " ", text, ": wanted a time above 0 with its unit, such as 30s, 10m or 2h"));
}

void FitFlags::add(ArgumentParser& parser) {
  add_loader(parser);
  const std::string group = "Run (docs/runs.md)";
  parser
      .add_option("--run-dir", run_dir,
                  "a folder for the run: config.json, run.json, metrics.jsonl and .csv, TensorBoard events, log.txt, last.onnx, "
                  "best.onnx, checkpoints")
      .type_name("DIR")
      .group(group);
  parser.add_flag("--resume", resume, "the run of --run-dir goes on; a new one starts where there is none").group(group);
  parser.add_flag("--overwrite", overwrite, "the run that --run-dir holds is replaced").group(group);
  parser.add_option("--checkpoint-every", checkpoint_every, "a checkpoint after so many steps, or a time: 500, 10m")
      .type_name("N|TIME")
      .group(group);
  parser.add_option("--keep", keep, "so many checkpoints stay, 0 for all (default 3)").type_name("N").group(group);
  parser.add_option("--config", config, "options from a JSON file, {\"lr\": 0.001, ...} or a config.json; the command line wins")
      .type_name("JSON")
      .group(group);
  parser.add_flag("--print-config", print_config, "print every option, its value and where that came from; run nothing")
      .group(group);
  parser.add_flag("--plan-only", plan_only, "check everything, print the plan, the schedule and the memory; run nothing")
      .group(group);
  parser.add_option("--eval-every", eval_every, "evaluate after so many steps rather than after each epoch")
      .type_name("N")
      .group(group);
  parser.add_option("--early-stop", early_stop, "end after N evaluations without improvement: loss:5, accuracy:3")
      .type_name("METRIC:N")
      .group(group);
  parser.add_option("--save-best", save_best, "keep what was evaluated best by this, loss or a metric, as best.onnx in --run-dir")
      .type_name("METRIC")
      .group(group);
  parser.add_option("--max-time", max_time, "end after the step in which this time has passed: 30s, 10m, 2h")
      .type_name("TIME")
      .group(group);
  parser.add_option("--log-every", log_every, "tell of every N-th step, and of the first and the last (default: each)")
      .type_name("N")
      .group(group);
  parser
      .add_option("--drop-last", drop_last,
                  "false: the rows of an epoch that fill no batch are trained on too, by a smaller step (default true)")
      .type_name("true|false")
      .one_of({"true", "false"})
      .group(group);
}

void FitFlags::add_loader(ArgumentParser& parser) {
  const std::string group = "Data (docs/data.md)";
  parser
      .add_option(
          "--workers", workers,
          "threads that read batches ahead; the training is the same for any number (default: none for data in memory, else "
          "by processors)")
      .type_name("N")
      .group(group);
  parser.add_option("--prefetch", prefetch, "batches that workers are ahead (default 4)").type_name("N").group(group);
  parser
      .add_option("--on-bad-sample", on_bad_sample,
                  "skip: the next row stands in for one that cannot be read, which is counted (default stop)")
      .type_name("stop|skip")
      .one_of({"stop", "skip"})
      .group(group);
}

void FitFlags::check() const {
  if (resume && overwrite) refuse_run("--resume and --overwrite: a run goes on or is replaced; give one of them");
  const std::pair<bool, const char*> needing[] = {{resume, "--resume"},
                                                  {overwrite, "--overwrite"},
                                                  {!checkpoint_every.empty(), "--checkpoint-every"},
                                                  {!save_best.empty(), "--save-best"},
                                                  {keep.has_value(), "--keep"}};
  for (const auto& [given, flag] : needing)
    if (given && run_dir.empty()) refuse_run(concat(flag, ": there is no --run-dir DIR"));
  require_from(1, "--eval-every", eval_every);
  require_from(1, "--log-every", log_every);
  require_from(0, "--keep", keep);
  require_workers(workers);
  FitOptions read;
  apply(read);
}

EarlierRun FitFlags::earlier() const {
  return resume ? EarlierRun::resume : overwrite ? EarlierRun::overwrite : EarlierRun::refuse;
}

void FitFlags::apply(FitOptions& options) const {
  options.eval_every = eval_every.value_or(0);
  options.early_stop = early_stop;
  options.save_best = save_best;
  if (log_every) options.log_every = *log_every;
  if (keep) options.keep = *keep;
  options.drop_last = drop_last == "true";
  options.plan_only = plan_only;
  if (workers) options.workers = *workers;
  options.prefetch = prefetch;
  options.on_bad_sample = on_bad_sample == "skip" ? BadSample::skip : BadSample::stop;
  if (!max_time.empty()) options.max_seconds = parse_duration(max_time, "--max-time");
  if (checkpoint_every.empty()) return;
  if (checkpoint_every.find_first_not_of("0123456789") != checkpoint_every.npos)
    options.checkpoint_every_seconds = parse_duration(checkpoint_every, "--checkpoint-every");
  else if ((options.checkpoint_every = parse_integer(checkpoint_every, "--checkpoint-every")) < 1)
    refuse_run("--checkpoint-every 0: wanted 1 or more steps, or a time such as 10m");
}

}  // namespace gcomp::tools
