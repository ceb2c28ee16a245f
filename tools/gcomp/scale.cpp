// gcomp scale: what a training step would take on many GPUs, simulated from what its programs do and the rates of links.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "codegen/generate.h"
#include "codegen/scale/scaling.h"
#include "codegen/target.h"
#include "gcomp/driver/compile.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/units.h"
#include "passes/training/distribute.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/rate_flags.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/step_flags.h"

namespace gcomp::tools {
namespace {

namespace scale = codegen::scale;

constexpr std::int64_t kMostSimulatedRanks = 1 << 16;

struct ScaleFlags {
  std::string model, target = "cuda:sm_90", loss, output, ranks = "1,2,4,8", scaling = "weak", rates, step_time, wire = "f32",
                     route = "flat", casts = "together";
  std::vector<std::string> links;
  std::int64_t batch = 0;
  double contention = scale::kContention;
  bool no_overlap = false;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  StepFlags step;
};

[[noreturn]] void scale_usage(const std::string& message) { throw UserError(message, ExitCode::usage); }

std::vector<std::int64_t> parse_ranks(const std::string& text) {
  std::vector<std::int64_t> ranks;
  std::string word;
  for (const char c : text + ",") {
    if (c != ',') {
      word += c;
      continue;
    }
    ranks.push_back(parse_integer(word, "--ranks " + text));
    word.clear();
    if (ranks.back() < 1 || ranks.back() > kMostSimulatedRanks)
      scale_usage(concat("--ranks ", text, ": wanted numbers from 1 to ", kMostSimulatedRanks, " with commas, such as 1,2,4,8"));
  }
  return ranks;
}

scale::ExchangeOptions exchange_options(const ScaleFlags& flags) {
  if (flags.step.zero != 0 && flags.step.zero != 1)
    scale_usage(concat("--zero ", flags.step.zero, ": wanted 0 or 1; steps with 2 and 3 are not simulated"));
  if (!(flags.contention >= 0 && flags.contention <= 1))
    scale_usage(concat("--contention ", flags.contention, ": wanted a share from 0 to 1"));
  return {.links = parse_links(flags.links),
          .route = flags.route == "groups" ? scale::Route::by_groups : scale::Route::flat,
          .zero = flags.step.zero,
          .overlap = !flags.no_overlap,
          .bucket_bytes = flags.step.bucket_mib * (1 << 20),
          .contention = flags.contention,
          .wire_share = flags.wire == "bf16" ? 0.5 : 1};
}

/// The rows of a micro-batch.
std::int64_t rows_of(const ScaleFlags& flags) {
  if (flags.batch < 1)
    scale_usage(concat("--batch ", flags.batch, ": wanted the rows of a step, of each rank or with --scaling strong of all"));
  return *driver::shard_rows(flags.batch, flags.step.micro_batches);
}

class ScaleRun {
 public:
  ScaleRun(const ScaleFlags& flags, const Console& console)
      : flags_(flags),
        console_(console),
        ranks_(parse_ranks(flags.ranks)),
        exchange_(exchange_options(flags)),
        scaling_(flags.scaling == "strong" ? scale::Scaling::strong : scale::Scaling::weak),
        target_(runtime::parse_target(flags.target)),
        rates_(device_rates()) {
    for (const std::int64_t ranks : ranks_)
      if (ranks > 1) passes::require_ranks(flags_.step.micro_batches * (scaling_ == scale::Scaling::strong ? 1 : ranks), ranks);
    loss_ = driver::read_loss(flags.loss, flags.output);
    optimizer_ = flags.optimizer.parse();
  }

  void run() {
    scale::RankStep step = rank_step();
    if (!flags_.step_time.empty()) {
      const double seconds = parse_time(flags_.step_time, "--step-time");
      step = scale::as_measured(std::move(step), flags_.step.micro_batches, seconds);
    }
    std::vector<scale::ScalePoint> points;
    for (const std::int64_t ranks : ranks_)
      points.push_back(scale::scale_point(step, scaling_, flags_.step.micro_batches, ranks, exchange_));
    print(step, points);
  }

 private:
  codegen::DeviceRates device_rates() const {
    if (!flags_.rates.empty()) return parse_rates(flags_.rates);
    const codegen::DeviceRates* rates = codegen::target_of(target_).rates;
    if (!rates) scale_usage(concat("--target ", flags_.target, ": wanted --rates of the device with it; gcomp knows none"));
    return *rates;
  }

  /// Two micro-batches make the programs of a step in shards, whose shapes do not depend on the number of shards.
  driver::GraphOptions graph_options() const {
    driver::GraphOptions options = flags_.model_options.parse();
    options.target = target_;
    if (!options.precision) options.precision = DType::f32;
    options.shapes.batch = 2 * rows_of(flags_);
    options.step = flags_.step.parse(flags_.optimizer.rate());
    options.step.micro_batches = 2;
    return options;
  }

  scale::RankStep rank_step() const {
    CompileProgress progress(console_);
    driver::CompileHooks hooks;
    hooks.begin = [&](std::string_view phase) { progress.begin(phase); };
    const driver::GraphOptions options = graph_options();
    const Model model = Model::load(flags_.model);
    driver::ModelGraph made = driver::training_graph(model, options, loss_, optimizer_, hooks);
    check_internal(made.accumulation.has_value(), "a step of two micro-batches in one program");
    const std::vector<std::string>& handed = made.accumulation->handed;
    check_user(handed.empty(), "running statistic '", handed.empty() ? "" : handed[0],
               "' is read by the step that it changes: such a model is trained by one rank");
    std::optional<codegen::CountedProgram> shard, count, rest;
    for (driver::StepGraph& part : driver::step_graphs(made, hooks)) {
      std::optional<codegen::CountedProgram>* wanted = part.program == driver::kShardProgram      ? &shard
                                                       : part.program == driver::kCountProgram    ? &count
                                                       : part.program == driver::kTrainingProgram ? &rest
                                                                                                  : nullptr;
      if (!wanted) continue;
      const driver::LoweredGraph lowered = driver::lower_graph(std::move(part.graph), target_, part.hooks);
      *wanted = codegen::generate_counted(lowered.graph, lowered.plan, target_, options.program_limits);
    }
    check_internal(shard && rest, "a step in micro-batches without its programs");
    const auto costed = [](const codegen::CountedProgram& made_program) {
      return scale::Costed{&made_program.program, made_program.costs};
    };
    return scale::rank_step(costed(*shard), count ? costed(*count) : scale::Costed(), costed(*rest), rates_,
                            flags_.casts == "apart" ? scale::Segments::apart : scale::Segments::together);
  }

  void print(const scale::RankStep& step, const std::vector<scale::ScalePoint>& points) const {
    console_.result(concat("device: ", rates_.name, flags_.step_time.empty() ? ", at the rates that it can reach" : "",
                           flags_.step_time.empty() ? "" : concat(", one rank's step measured as ", flags_.step_time)));
    console_.result(concat("links: ", text_of(exchange_.links), flags_.route == "groups" ? ", exchanges group by group" : ""));
    const bool strong = scaling_ == scale::Scaling::strong;
    console_.result(concat("batch: ", flags_.batch, strong ? " rows in all, in " : " rows a rank, in ", flags_.step.micro_batches,
                           flags_.step.micro_batches == 1 ? " micro-batch" : " micro-batches", "; ",
                           size_text(step.gradient_bytes()), " of gradients, ", size_text(step.parameter_bytes()),
                           " of parameters, ", flags_.wire, " on the wire, ZeRO ", flags_.step.zero));
    console_.result(flags_.no_overlap ? "exchanges run after the backward pass and before the forward pass"
                                      : "exchanges run beside the backward and the forward pass");
    console_.result("  ranks  micro-batches       sent       step    compute  exchanges    exposed  speedup  efficiency  limit");
    for (const scale::ScalePoint& point : points) console_.result(line_of(point));
    console_.result_json(json_of(step, points));
  }

  static std::string line_of(const scale::ScalePoint& point) {
    char text[200];
    std::snprintf(text, sizeof text, "%7lld %14lld %10s %10s %10s %10s %10s %8.2f %11s  ", static_cast<long long>(point.ranks),
                  static_cast<long long>(point.shards), size_text(point.times.sent_bytes).c_str(),
                  time_text(point.times.seconds).c_str(), time_text(point.times.compute).c_str(),
                  time_text(point.times.communication()).c_str(), time_text(point.times.exposed()).c_str(), point.speedup(),
                  percent_text(point.efficiency).c_str());
    std::string limit = point.limit.empty() ? "-" : concat(point.limit, " (", percent_text(point.limit_cost), ")");
    return text + limit;
  }

  nlohmann::json json_of(const scale::RankStep& step, const std::vector<scale::ScalePoint>& points) const {
    nlohmann::json rows = nlohmann::json::array();
    for (const scale::ScalePoint& point : points)
      rows.push_back({{"ranks", point.ranks},
                      {"micro_batches", point.shards},
                      {"sent_bytes", point.times.sent_bytes},
                      {"step_seconds", point.times.seconds},
                      {"compute_seconds", point.times.compute},
                      {"exchange_seconds", point.times.communication()},
                      {"latency_seconds", point.times.latency},
                      {"wire_seconds", point.times.wire},
                      {"kernel_seconds", point.times.kernels},
                      {"exposed_seconds", point.times.exposed()},
                      {"one_rank_seconds", point.one.seconds},
                      {"speedup", point.speedup()},
                      {"efficiency", point.efficiency},
                      {"limit", point.limit},
                      {"limit_cost", point.limit_cost}});
    return {{"model", flags_.model},
            {"device", rates_.name},
            {"scaling", flags_.scaling},
            {"batch", flags_.batch},
            {"links", text_of(exchange_.links)},
            {"zero", flags_.step.zero},
            {"overlap", !flags_.no_overlap},
            {"gradient_bytes", step.gradient_bytes()},
            {"points", std::move(rows)}};
  }

  const ScaleFlags& flags_;
  const Console& console_;
  std::vector<std::int64_t> ranks_;
  scale::ExchangeOptions exchange_;
  scale::Scaling scaling_;
  runtime::Target target_;
  codegen::DeviceRates rates_;
  driver::LossSpec loss_;
  driver::Optimizer optimizer_;
};

void add_scale_options(ArgumentParser& parser, ScaleFlags& flags) {
  const std::string group = "Ranks and links (docs/distributed.md)";
  parser.add_option("--ranks", flags.ranks, "for which numbers of GPUs (default 1,2,4,8)").type_name("N,...").group(group);
  parser.add_option("--scaling", flags.scaling, "weak (default): --batch and --micro-batches are each rank's; strong: those of all")
      .one_of({"weak", "strong"})
      .group(group);
  add_links(parser, flags.links, group);
  parser
      .add_option(
          "--rates", flags.rates,
          "of the device: h200 (default), rtx3090, with other values as h200,copy=4TB/s,f32=60TFLOP/s, or all of copy, f64, f32, "
          "f16, bf16 and launch")
      .type_name("RATES")
      .group(group);
  parser
      .add_option("--step-time", flags.step_time,
                  "what one rank's step was measured to take: all computing is that much slower than the rates allow")
      .type_name("TIME")
      .group(group);
  parser.add_flag("--no-overlap", flags.no_overlap, "exchanges run by themselves, not beside what is computed").group(group);
  parser
      .add_option(
          "--contention", flags.contention,
          "share of the GPU that moving data takes from what is computed beside it (default 0.12: 16 of 132 multiprocessors)")
      .type_name("X")
      .group(group);
  parser.add_option("--wire", flags.wire, "as what gradients and parameters travel: f32 (default) or bf16")
      .one_of({"f32", "bf16"})
      .group(group);
  parser
      .add_option("--route", flags.route,
                  "flat (default): one exchange among all ranks; groups: first within the groups of --link, then between them")
      .one_of({"flat", "groups"})
      .group(group);
  parser
      .add_option(
          "--casts", flags.casts,
          "together (default): casts of all parameters or gradients in one launch, as programs have them; apart: each where it "
          "is wanted or ready")
      .one_of({"together", "apart"})
      .group(group);
}

}  // namespace

Command add_scale(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<ScaleFlags>();
  ArgumentParser parser = root.add_subcommand("scale", "simulate a training step on 1 to 1,024 GPUs and more, without any");
  parser.add_option("MODEL", flags->model, "an .onnx file").required();
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  parser.add_option("--target", flags->target, "whose programs (default cuda:sm_90)").type_name("TARGET");
  parser.add_option("--batch", flags->batch, "rows of a step, of each rank or with --scaling strong of all").type_name("N");
  flags->model_options.add_precision(parser, "what floats compute in (default f32)");
  flags->model_options.add_loss_scale(parser);
  flags->model_options.add_shapes(parser);
  flags->model_options.add_selection(parser);
  flags->optimizer.add(parser);
  flags->step.add(parser);
  add_scale_options(parser, *flags);
  parser.set_footer(
      "Examples:\n"
      "  gcomp scale gpt2.onnx --loss cross_entropy --batch 32 --precision bf16 --link 450GB/s,3us --ranks 1,2,4,8\n"
      "  gcomp scale gpt2.onnx --loss cross_entropy --batch 32 --precision bf16 --link 450GB/s,3us --link 8:50GB/s,10us "
      "--route groups --ranks 8,64,1024\n"
      "  gcomp scale resnet50.onnx --loss cross_entropy --batch 64 --rates rtx3090 --link 25GB/s,10us --ranks 1,2,4");
  return {parser, [flags, &console] {
            if (flags->loss.empty()) scale_usage(missing_loss("--loss is missing"));
            ScaleRun(*flags, console).run();
          }};
}

}  // namespace gcomp::tools
