// gcomp bench: how long a training step takes.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "gcomp/driver/fit/batch_feeder.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/training.h"
#include "ir/base/units.h"
#include "runtime/backend.h"
#include "runtime/batch_plan.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/data_flags.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/step_flags.h"
#include "tools/gcomp/step_profile.h"

namespace gcomp::tools {
namespace {

struct BenchFlags {
  std::string model, loss, output;
  DataFlags data;
  std::int64_t batch = 0, micro_batches = 1, steps = 50, warmup = 10;
  bool profile = false;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  DeviceOptions device;
};

double percentile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

struct Timing {
  std::vector<double> milliseconds;  ///< of the timed steps
  std::vector<double> losses;        ///< of all
  double mean = 0;                   ///< the time of all timed steps over their number; what a late look at a loss cannot distort
};

/// Runs warm-up and timed steps as a training loop does: a GPU computes a step while the loss of the one before is read. A step
/// lasts from its start, or the end of the one before it if that came later, until its loss is here. Rows are loaded only where
/// they differ from those of the last step: a file of one batch stays resident.
Timing time_steps(const BenchFlags& flags, Trainer& trainer, const Dataset& data, std::span<std::int64_t> nanoseconds) {
  using Clock = std::chrono::steady_clock;
  driver::BatchFeeder feeder(data, driver::fed_arrays(trainer));
  const EpochKey first_epoch;
  runtime::BatchPlan plan(data.rows(), flags.batch, 0, runtime::RowOrder::sequential);
  const std::int64_t total = flags.warmup + flags.steps;
  const bool one_batch = data.rows() == flags.batch;
  Timing timing;
  std::vector<Clock::time_point> starts;
  Clock::time_point last_end = Clock::now(), timed_begin = last_end;
  for (std::int64_t started = 0, taken = 0; taken < total;) {
    const bool profile_begins = flags.profile && started == flags.warmup;
    const int room = profile_begins ? 1 : trainer.most_pending();
    if (started < total && trainer.pending() < room) {
      for (std::size_t i = 0; i < feeder.inputs() && (started == 0 || !one_batch); ++i)
        feeder.fill(i, plan.rows_of(started), &first_epoch, trainer.input(i));
      if (profile_begins) driver::step_of(trainer).time_steps(nanoseconds);
      starts.push_back(Clock::now());
      driver::on_rows(
          trainer, data, [&] { trainer.start(); }, [&] { return plan.rows_of(started); });
      ++started;
      continue;
    }
    timing.losses.push_back(driver::on_rows(
        trainer, data, [&] { return trainer.take_loss(); }, [&] { return plan.rows_of(taken); }));
    const Clock::time_point end = Clock::now(), begin = std::max(last_end, starts[static_cast<std::size_t>(taken)]);
    if (taken >= flags.warmup) timing.milliseconds.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
    if (taken + 1 == flags.warmup) timed_begin = end;
    last_end = end;
    ++taken;
  }
  timing.mean = std::chrono::duration<double, std::milli>(last_end - timed_begin).count() / static_cast<double>(flags.steps);
  return timing;
}

/// What runs in a step.
std::int64_t launches_of(const driver::StepPrograms& step) {
  std::int64_t launches = 0;
  for (const runtime::Executable* program : step.all())
    launches += step.runs_of(*program) * static_cast<std::int64_t>(program->program().steps.size());
  return launches;
}

/// Bytes that a step needs, without the library's workspace and the context. Programs of a GPU share an arena.
nlohmann::json memory_of(const driver::StepPrograms& step) {
  std::int64_t arena = 0, constants = 0, io = 0;
  for (const runtime::Executable* executable : step.all()) {
    const runtime::Program& program = executable->program();
    const bool shared = !runtime::backend_of(program.target).everywhere;
    arena = shared ? std::max(arena, program.arena_bytes) : arena + program.arena_bytes;
    constants += program.constant_bytes;
    io += program.io_bytes * executable->runs_in_flight();
  }
  const std::int64_t states = step.step().states().bytes();
  return {{"states", states},
          {"arena", arena},
          {"constants", constants},
          {"inputs_and_outputs", io},
          {"total", states + arena + constants + io}};
}

/// The three times, in seconds, have the median's unit.
std::string step_line(const BenchFlags& flags, double median, double least, double p90) {
  const auto [one, unit] = time_unit(median);
  const int decimals = median < 10 * one ? 3 : median < 100 * one ? 2 : 1;
  char text[160];
  std::snprintf(text, sizeof text, "step: median %.*f %s, least %.*f %s, P90 %.*f %s, ", decimals, median / one, unit.data(),
                decimals, least / one, unit.data(), decimals, p90 / one, unit.data());
  return concat(text, rows_rate_text(static_cast<double>(flags.batch) / median), " (", flags.steps, " steps after ", flags.warmup,
                " of warm-up)");
}

void bench(const BenchFlags& flags, const Console& console) {
  const auto begin = std::chrono::steady_clock::now();
  const auto usage = [](const std::string& message) { throw UserError(message, ExitCode::usage); };
  if (flags.loss.empty()) usage(missing_loss("--loss is missing"));
  if (flags.batch < 1 || flags.steps < 1 || flags.warmup < 0) usage("--batch and --steps: wanted 1 or more; --warmup: 0 or more");
  if (flags.profile && flags.micro_batches > 1) usage("--profile looks into a step of one program: leave --micro-batches out");
  driver::TrainOptions options;
  options.loss = flags.loss;
  options.output = flags.output;
  options.optimizer = flags.optimizer.parse();
  options.learning_rate = flags.optimizer.rate();
  options.batch = flags.batch;
  options.graph = flags.model_options.parse();
  options.graph.step.micro_batches = flags.micro_batches;
  options.device = flags.device.request();
  options.device_options = flags.device.parse(console);
  CompileProgress compiling(console);
  compiling.watch(options.hooks, options.device_options);
  std::vector<codegen::StepCost> costs;  // of the training step, the first program that is generated
  options.hooks.costs = [&](const std::vector<codegen::StepCost>& counted) {
    if (costs.empty()) costs = counted;
  };
  const Model model = Model::load(flags.model);
  require_output(flags.output, model, "");
  const driver::LossSpec loss = driver::read_loss(flags.loss, flags.output);
  const driver::OpenedData opened = driver::open_data(flags.data.request, driver::wanted_arrays(model, loss), &model);
  const Dataset& data = *opened.train;
  options.graph.shapes.data = driver::types_of(data);
  options.graph.shapes.data_source = data.source();
  options.graph.input_forms = opened.input_forms;
  Trainer trainer = driver::make_trainer(model, options);
  driver::check_data(data, trainer);
  console.say("device: " + trainer.device());
  const double setup = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<std::int64_t> nanoseconds(flags.profile ? driver::step_of(trainer).program().steps.size() : 0);
  auto [milliseconds, losses, mean] = time_steps(flags, trainer, data, nanoseconds);
  const driver::StepPrograms& step = driver::step_programs_of(trainer);
  const nlohmann::json memory = memory_of(step);
  std::vector<ProfiledStep> profile;
  if (flags.profile) profile = profile_of(step.step().program(), costs, nanoseconds, flags.steps);
  report_profile(console, profile);
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = percentile(milliseconds, 0.5), p90 = percentile(milliseconds, 0.9), least = milliseconds.front();
  console.result(step_line(flags, median / 1e3, least / 1e3, p90 / 1e3));
  nlohmann::json report = {{"median_ms", median},
                           {"min_ms", least},
                           {"p90_ms", p90},
                           {"mean_ms", mean},
                           {"steps", flags.steps},
                           {"warmup", flags.warmup},
                           {"batch", flags.batch},
                           {"setup_seconds", setup},
                           {"device", trainer.device()},
                           {"launches", launches_of(step)},
                           {"arena_bytes", memory["arena"]},
                           {"memory", memory},
                           {"losses", losses}};
  if (flags.profile) report["profile"] = to_json(profile);
  console.result_json(std::move(report));
}

}  // namespace

Command add_bench(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<BenchFlags>();
  ArgumentParser parser = root.add_subcommand("bench", "time a training step");
  parser.add_option("MODEL", flags->model, "an .onnx file").required();
  flags->data.add(parser);
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  parser.add_option("--batch", flags->batch, "rows of one step").type_name("N").required();
  add_micro_batches(parser, flags->micro_batches);
  parser.add_option("--steps", flags->steps, "timed steps (default 50)").type_name("N");
  parser.add_option("--warmup", flags->warmup, "steps before them (default 10)").type_name("N");
  parser.add_flag(
      "--profile", flags->profile,
      "also list each kernel and library call with its time, its share, and the FLOP/s or bytes a second it came to; on a GPU the "
      "timed steps are then launched one by one");
  flags->model_options.add_precision(parser, "what floats compute in (default f32)");
  flags->model_options.add_loss_scale(parser);
  flags->model_options.add_shapes(parser);
  flags->optimizer.add(parser);
  flags->device.add(parser);
  parser.set_footer(
      "Example:\n  gcomp bench m.onnx --data x.npz --loss cross_entropy --optimizer adam --batch 128 --threads 2 --steps 50 "
      "--json");
  return {parser, [flags, &console] { bench(*flags, console); }};
}

}  // namespace gcomp::tools
