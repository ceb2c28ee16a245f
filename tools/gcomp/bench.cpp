// gcomp bench: how long a training step takes.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/batch_plan.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_data.h"

namespace gcomp::tools {
namespace {

struct BenchFlags {
  std::string model, data, loss;
  std::int64_t batch = 0, steps = 50, warmup = 10;
  bool profile = false;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  DeviceOptions device;
};

double percentile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

/// The dearest steps of the program, by time.
void report_profile(const Console& console, const runtime::Program& program, const std::vector<std::int64_t>& nanoseconds,
                    std::int64_t runs) {
  std::vector<std::size_t> order(nanoseconds.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return nanoseconds[a] > nanoseconds[b]; });
  std::int64_t total = 0;
  for (const std::int64_t time : nanoseconds) total += time;
  for (const std::size_t i : order) {
    const auto [what, origin] = std::visit(
        [&](const auto& step) -> std::pair<std::string, std::string> {
          using T = std::decay_t<decltype(step)>;
          if constexpr (std::is_same_v<T, runtime::KernelLaunch>)
            return {program.kernels[static_cast<std::size_t>(step.kernel)].name, step.origin};
          else if constexpr (std::is_same_v<T, runtime::MatmulCall>)
            return {concat("matmul ", step.m, "x", step.n, "x", step.k), step.origin};
          else return {"convolution", step.origin};
        },
        program.steps[i]);
    char text[64];
    std::snprintf(text, sizeof text, "%9.1f us %5.1f %%  ", static_cast<double>(nanoseconds[i]) / 1e3 / static_cast<double>(runs),
                  100.0 * static_cast<double>(nanoseconds[i]) / static_cast<double>(std::max<std::int64_t>(1, total)));
    console.say(concat(text, what, "  ", origin));
  }
}

void bench(const BenchFlags& flags, const Console& console) {
  const auto usage = [](const std::string& message) { throw UserError(message, ExitCode::usage); };
  if (flags.loss.empty()) usage("--loss is missing: cross_entropy, mse, l1, bce, bce_with_logits or output:NAME");
  if (flags.batch < 1 || flags.steps < 1 || flags.warmup < 0) usage("--batch and --steps: wanted 1 or more; --warmup: 0 or more");
  TrainOptions options;
  options.loss = flags.loss;
  options.optimizer = flags.optimizer.parse();
  options.learning_rate = flags.optimizer.learning_rate;
  options.batch = flags.batch;
  options.graph = flags.model_options.parse();
  options.device = flags.device.request();
  options.device_options = flags.device.parse(console);
  const Model model = Model::load(flags.model);
  const std::vector<std::string> names = array_names(model.inputs(), flags.loss);
  runtime::Dataset data = open_data(flags.data, names);
  options.graph.shapes.data = types_of(data, names);
  options.graph.shapes.data_source = flags.data;
  Trainer trainer(model, options);
  fit(data, trainer);
  console.say("device: " + trainer.device());
  BatchFeeder feeder(data, trainer);
  runtime::BatchPlan plan(data.rows(), flags.batch, 0, runtime::RowOrder::sequential);
  std::vector<double> milliseconds, losses;
  std::vector<std::int64_t> profile(flags.profile ? trainer.executable().program().steps.size() : 0);
  for (std::int64_t step = 0; step < flags.warmup + flags.steps; ++step) {
    const auto rows = plan.rows_of(step);
    feeder.load(rows);
    if (step == flags.warmup && flags.profile) trainer.executable().time_steps(profile);
    const auto start = std::chrono::steady_clock::now();
    losses.push_back(on_rows(
        trainer, data, [&] { return trainer.step(); }, [&] { return rows; }));
    if (step >= flags.warmup)
      milliseconds.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  if (flags.profile) report_profile(console, trainer.executable().program(), profile, flags.steps);
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = percentile(milliseconds, 0.5), p90 = percentile(milliseconds, 0.9), least = milliseconds.front();
  char text[160];
  std::snprintf(text, sizeof text,
                "step: median %.3f ms, least %.3f ms, P90 %.3f ms, %.0f rows/s (%lld steps after %lld of warm-up)", median, least,
                p90, 1e3 * static_cast<double>(flags.batch) / median, static_cast<long long>(flags.steps),
                static_cast<long long>(flags.warmup));
  console.result(text);
  console.result_json({{"median_ms", median},
                       {"min_ms", least},
                       {"p90_ms", p90},
                       {"steps", flags.steps},
                       {"warmup", flags.warmup},
                       {"batch", flags.batch},
                       {"launches", trainer.executable().program().steps.size()},
                       {"arena_bytes", trainer.executable().program().arena_bytes},
                       {"losses", losses}});
}

}  // namespace

Command add_bench(CLI::App& app, Console& console) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App& sub = *app.add_subcommand("bench", "time a training step");
  sub.add_option("MODEL", flags->model, "an .onnx file")->required();
  sub.add_option("--data", flags->data, "arrays named after the model's inputs, and 'label'")->type_name("NPZ")->required();
  add_loss(sub, flags->loss);
  sub.add_option("--batch", flags->batch, "rows of one step")->type_name("N")->required();
  sub.add_option("--steps", flags->steps, "timed steps (default 50)")->type_name("N");
  sub.add_option("--warmup", flags->warmup, "steps before them (default 10)")->type_name("N");
  sub.add_flag("--profile", flags->profile, "also list the time of each kernel and library call");
  flags->model_options.add_precision(sub, "what floats compute in (default f32)");
  flags->model_options.add_shapes(sub);
  flags->optimizer.add(sub);
  flags->device.add(sub);
  sub.footer(
      "Example:\n  gcomp bench m.onnx --data x.npz --loss cross_entropy --optimizer adam --batch 128 --threads 2 --steps 50 "
      "--json");
  return {&sub, [flags, &console] { bench(*flags, console); }};
}

}  // namespace gcomp::tools
