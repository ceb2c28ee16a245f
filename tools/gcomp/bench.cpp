// gcomp bench: how long a training step takes, or a forward pass.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "gcomp/driver/fit/batch_feeder.h"
#include "gcomp/driver/forward.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/prediction.h"
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
  std::string model, loss, output, recompute, loss_chunks = "1";
  DataFlags data;
  std::int64_t batch = 0, micro_batches = 1, steps = 50, warmup = 10;
  bool profile = false, inference = false;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  DeviceOptions device;
};

double percentile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

using Clock = std::chrono::steady_clock;

double milliseconds_of(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

struct Timing {
  std::vector<double> milliseconds;  ///< of the timed steps
  std::vector<double> losses;        ///< of all; none of forward passes
  double mean = 0;                   ///< the time of all timed steps over their number; what a late look at a loss cannot distort
};

/// Runs warm-up and timed steps as a training loop does: a GPU computes a step while the loss of the one before is read. A step
/// lasts from its start, or the end of the one before it if that came later, until its loss is here. Rows are loaded only where
/// they differ from those of the last step: a file of one batch stays resident.
Timing time_steps(const BenchFlags& flags, Trainer& trainer, const Dataset& data, std::span<std::int64_t> nanoseconds) {
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
    // A step that is timed kernel by kernel is over when start() returns: none runs beside another.
    const int room = flags.profile && started >= flags.warmup ? 1 : trainer.most_pending();
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
    if (taken >= flags.warmup) timing.milliseconds.push_back(milliseconds_of(end - begin));
    if (taken + 1 == flags.warmup) timed_begin = end;
    last_end = end;
    ++taken;
  }
  timing.mean = milliseconds_of(last_end - timed_begin) / static_cast<double>(flags.steps);
  return timing;
}

/// Runs warm-up and timed forward passes one after another, each from its start until its outputs are here. Rows are loaded before,
/// in the form of inference, and only where they differ from those of the last pass.
Timing time_passes(const BenchFlags& flags, driver::Forward& forward, const Dataset& data, std::span<std::int64_t> nanoseconds) {
  runtime::Executable& program = forward.executable();
  const std::vector<std::size_t> inputs = driver::data_inputs(program.program());
  const driver::FedArrays fed = driver::fed_arrays(program.program(), {});
  driver::check_data(data, fed);
  driver::BatchFeeder feeder(data, fed);
  runtime::BatchPlan plan(data.rows(), flags.batch, 0, runtime::RowOrder::sequential);
  const bool one_batch = data.rows() == flags.batch;
  Timing timing;
  Clock::time_point timed_begin = Clock::now(), end = timed_begin;
  for (std::int64_t pass = 0; pass < flags.warmup + flags.steps; ++pass) {
    const std::span<const std::int64_t> rows = plan.rows_of(pass);
    for (std::size_t i = 0; i < inputs.size() && (pass == 0 || !one_batch); ++i)
      feeder.fill(i, rows, nullptr, program.input(inputs[i]));
    if (flags.profile && pass == flags.warmup) program.time_steps(nanoseconds);
    const Clock::time_point begin = Clock::now();
    if (pass == flags.warmup) timed_begin = begin;
    try {
      forward.run_filled(rows.front());
    } catch (const UserError& error) { throw UserError(concat("'", data.source(), "': ", error.what()), error.code()); }
    end = Clock::now();
    if (pass >= flags.warmup) timing.milliseconds.push_back(milliseconds_of(end - begin));
  }
  timing.mean = milliseconds_of(end - timed_begin) / static_cast<double>(flags.steps);
  return timing;
}

/// A program, and how often a step runs it.
struct TimedProgram {
  runtime::Executable* executable;
  std::int64_t runs = 1;
};

std::vector<TimedProgram> programs_of(const driver::StepPrograms& step) {
  std::vector<TimedProgram> programs;
  for (runtime::Executable* program : step.all()) programs.push_back({program, step.runs_of(*program)});
  return programs;
}

/// What runs in a step.
std::int64_t launches_of(std::span<const TimedProgram> programs) {
  std::int64_t launches = 0;
  for (const auto& [executable, runs] : programs) launches += runs * static_cast<std::int64_t>(executable->program().steps.size());
  return launches;
}

/// Bytes that a step needs, without the library's workspace and the context. Programs share their states, those of a GPU an arena.
nlohmann::json memory_of(std::span<const TimedProgram> programs) {
  std::int64_t arena = 0, constants = 0, io = 0;
  for (const TimedProgram& timed : programs) {
    const runtime::Program& program = timed.executable->program();
    const bool shared = !runtime::backend_of(program.target).everywhere;
    arena = shared ? std::max(arena, program.arena_bytes) : arena + program.arena_bytes;
    constants += program.constant_bytes;
    io += program.io_bytes * timed.executable->runs_in_flight();
  }
  const std::int64_t states = programs.front().executable->states().bytes();
  return {{"states", states},
          {"arena", arena},
          {"constants", constants},
          {"inputs_and_outputs", io},
          {"total", states + arena + constants + io}};
}

/// The three times, in seconds, have the median's unit.
std::string times_line(const BenchFlags& flags, double median, double least, double p90) {
  const auto [one, unit] = time_unit(median);
  const int decimals = median < 10 * one ? 3 : median < 100 * one ? 2 : 1;
  char text[160];
  std::snprintf(text, sizeof text, "%s: median %.*f %s, least %.*f %s, P90 %.*f %s, ", flags.inference ? "forward pass" : "step",
                decimals, median / one, unit.data(), decimals, least / one, unit.data(), decimals, p90 / one, unit.data());
  return concat(text, rows_rate_text(static_cast<double>(flags.batch) / median), " (", flags.steps,
                flags.inference ? " passes after " : " steps after ", flags.warmup, " of warm-up)");
}

/// Compiles what is timed, times and reports it.
class Bench {
 public:
  Bench(const BenchFlags& flags, const Console& console) : flags_(flags), console_(console), compiling_(console) {
    if (flags.batch < 1 || flags.steps < 1 || flags.warmup < 0)
      throw UserError("--batch and --steps: wanted 1 or more; --warmup: 0 or more", ExitCode::usage);
  }

  void time_training() {
    const auto usage = [](const std::string& message) { throw UserError(message, ExitCode::usage); };
    if (flags_.loss.empty()) usage(missing_loss("--loss is missing"));
    if (flags_.profile && flags_.micro_batches > 1) usage("--profile looks into a step of one program: leave --micro-batches out");
    driver::TrainOptions options;
    options.loss = flags_.loss;
    options.output = flags_.output;
    options.optimizer = flags_.optimizer.parse();
    options.learning_rate = flags_.optimizer.rate();
    options.batch = flags_.batch;
    prepare(options);
    options.graph.step.micro_batches = flags_.micro_batches;
    options.graph.step.most_memory = parse_recompute(flags_.recompute);
    options.graph.step.loss_chunks = parse_loss_chunks(flags_.loss_chunks);
    const Model model = Model::load(flags_.model);
    require_output(flags_.output, model, "");
    const driver::LossSpec loss = driver::read_loss(flags_.loss, flags_.output);
    const driver::OpenedData opened = driver::open_data(flags_.data.request, driver::wanted_arrays(model, loss), &model);
    const Dataset& data = *opened.train;
    options.graph.shapes.data = driver::types_of(data);
    options.graph.shapes.data_source = data.source();
    options.graph.input_forms = opened.input_forms;
    Trainer trainer = driver::make_trainer(model, options);
    driver::check_data(data, trainer);
    begin_timing(trainer.device(), driver::step_of(trainer));
    Timing timing = time_steps(flags_, trainer, data, nanoseconds_);
    report(std::move(timing), programs_of(driver::step_programs_of(trainer)), trainer.device());
  }

  void time_inference() {
    driver::PredictOptions options;
    options.batch = flags_.batch;
    prepare(options);
    Model model = Model::load(flags_.model);
    const driver::OpenedData opened = driver::open_data(flags_.data.request, driver::wanted_inputs(model), &model);
    const Dataset& data = *opened.train;
    options.graph.shapes.data_source = data.source();
    options.graph.input_forms = opened.input_forms;
    runtime::check_batch(data.rows(), flags_.batch);
    Predictor predictor = driver::make_predictor(std::move(model), options);
    const std::map<std::string, TensorType> types = driver::types_of(data);
    predictor.prepare({types.begin(), types.end()});
    check_user(predictor.batch() == flags_.batch, "'", flags_.model, "' takes no batches of ", flags_.batch,
               " rows: its inputs have no number of rows in common");
    driver::Forward& forward = driver::forward_of(predictor);
    begin_timing(predictor.device(), forward.executable());
    Timing timing = time_passes(flags_, forward, data, nanoseconds_);
    const TimedProgram programs[] = {{&forward.executable()}};
    report(std::move(timing), programs, predictor.device());
  }

 private:
  /// What a training step and a forward pass are compiled with alike.
  template <class Options>
  void prepare(Options& options) {
    options.graph = flags_.model_options.parse();
    options.device = flags_.device.request();
    options.device_options = flags_.device.parse(console_);
    compiling_.watch(options.hooks, options.device_options);
    options.hooks.costs = [this](const std::vector<codegen::StepCost>& counted) {
      if (costs_.empty()) costs_ = counted;
    };
  }

  void begin_timing(const std::string& device, const runtime::Executable& profiled) {
    console_.say("device: " + device);
    setup_ = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (flags_.profile) nanoseconds_.resize(profiled.program().steps.size());
  }

  void report(Timing timing, std::span<const TimedProgram> programs, const std::string& device) const {
    std::vector<ProfiledStep> profile;
    if (flags_.profile)
      profile = profile_of(programs.front().executable->program(), costs_, nanoseconds_, flags_.steps,
                           {flags_.device.tf32, flags_.device.prefer_cudnn});
    report_profile(console_, profile);
    std::vector<double>& milliseconds = timing.milliseconds;
    std::sort(milliseconds.begin(), milliseconds.end());
    const double median = percentile(milliseconds, 0.5), p90 = percentile(milliseconds, 0.9), least = milliseconds.front();
    console_.result(times_line(flags_, median / 1e3, least / 1e3, p90 / 1e3));
    const nlohmann::json memory = memory_of(programs);
    nlohmann::json json = {{"median_ms", median},
                           {"min_ms", least},
                           {"p90_ms", p90},
                           {"mean_ms", timing.mean},
                           {"steps", flags_.steps},
                           {"warmup", flags_.warmup},
                           {"batch", flags_.batch},
                           {"setup_seconds", setup_},
                           {"device", device},
                           {"launches", launches_of(programs)},
                           {"arena_bytes", memory["arena"]},
                           {"memory", memory}};
    if (!flags_.inference) json["losses"] = timing.losses;
    if (flags_.profile) json["profile"] = to_json(profile);
    console_.result_json(std::move(json));
  }

  const BenchFlags& flags_;
  const Console& console_;
  const Clock::time_point begin_ = Clock::now();
  double setup_ = 0;  // seconds until the first step
  CompileProgress compiling_;
  std::vector<codegen::StepCost> costs_;  // of the first program that is generated: the training step, or the forward pass
  std::vector<std::int64_t> nanoseconds_;
};

}  // namespace

Command add_bench(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<BenchFlags>();
  ArgumentParser parser = root.add_subcommand("bench", "time a training step, or a forward pass");
  parser.add_option("MODEL", flags->model, "an .onnx file").required();
  flags->data.add(parser);
  parser.add_flag("--inference", flags->inference,
                  "time the forward pass in inference form, what gcomp run computes, instead of a training step");
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  parser.add_option("--batch", flags->batch, "rows of one step").type_name("N").required();
  add_micro_batches(parser, flags->micro_batches);
  add_recompute(parser, flags->recompute);
  add_loss_chunks(parser, flags->loss_chunks);
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
      "Examples:\n"
      "  gcomp bench m.onnx --data x.npz --loss cross_entropy --optimizer adam --batch 128 --threads 2 --steps 50 --json\n"
      "  gcomp bench m.onnx --data x.npz --inference --batch 128 --threads 2 --steps 50 --json");
  return {parser, [parser, flags, &console] {
            Bench bench(*flags, console);
            if (!flags->inference) return bench.time_training();
            refuse_untrained(parser, "has no meaning with --inference, which trains nothing");
            bench.time_inference();
          }};
}

}  // namespace gcomp::tools
