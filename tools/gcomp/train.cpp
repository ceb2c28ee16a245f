// gcomp train: ONNX (or .gcx) and data in, trained model out.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/loss_file.h"
#include "ir/base/error.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/run_config.h"
#include "tools/gcomp/training_run.h"

namespace gcomp::tools {
namespace {

/// From reading to writing a signal is noted: what compiles stops, a step ends, and what is being written becomes whole.
void train_rank(const TrainFlags& flags, const Console& console, const OpenedRanks& opened) {
  const Interrupt interrupt;
  const driver::Ranks ranks(opened.communicator.get());
  std::optional<TrainingRun> run;
  try {
    ranks.agree([&] { run.emplace(flags, console, interrupt, opened); });
    run->train();
    if (!flags.run.plan_only) run->finish();
  } catch (const Unfinished& unfinished) {
    run->log(unfinished.message);
    throw;
  } catch (const RankFailed&) { throw; } catch (const Error& error) {
    if (run) run->log(error.what());
    if (interrupt.signal() == 0 || (run && run->started())) throw;
    const int signal = signal_asked(interrupt.signal());
    const bool goes_on = !flags.run.run_dir.empty() && !flags.run.overwrite && !flags.run.plan_only;
    throw Unfinished{concat("interrupted by ", name_of_signal(signal), " before the first step",
                            flags.out.empty() ? "" : concat("; '", flags.out, "' is not written"),
                            goes_on ? concat("; to go on: ", flags.resume_command) : ""),
                     goes_on ? kExitToResume : exit_code_of_signal(signal), nullptr};
  }
}

constexpr std::int64_t kShardsOfRanks = 8;

/// What the run that goes on was begun with; null where it is none, or had no such option.
nlohmann::json begun_with(const TrainFlags& flags, const char* option) {
  if (flags.run.run_dir.empty() || !flags.run.resume) return {};
  std::ifstream file(std::filesystem::path(flags.run.run_dir) / "config.json");
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
  if (!config.is_object() || !config.contains(option) || !config[option].is_object()) return {};
  return config[option].value("value", nlohmann::json());
}

void set_config(TrainFlags& flags, const char* option, const nlohmann::json& value, const char* from) {
  nlohmann::json config = nlohmann::json::parse(flags.config_json);
  config[option] = {{"value", value}, {"from", from}};
  flags.config_json = config.dump();
}

/// Into how many a step is cut where the command line does not say: as the run that goes on was, whoever ran it, else in eight
/// where there are ranks, be it one, so that their number changes nothing.
std::int64_t micro_batches_of(const TrainFlags& flags, bool has_ranks) {
  if (const nlohmann::json value = begun_with(flags, "micro-batches"); value.is_number_integer()) return value.get<std::int64_t>();
  return has_ranks ? kShardsOfRanks : 1;
}

void settle_micro_batches(TrainFlags& flags, Communicator* communicator) {
  if (flags.micro_batches_given || is_artifact(flags.model)) return;
  const bool has_ranks = communicator || flags.ranks.ranks > 0;
  const driver::Ranks ranks(communicator);
  const std::int64_t settled = std::stoll(ranks.from_first(std::to_string(micro_batches_of(flags, has_ranks))));
  if (settled == flags.step.micro_batches) return;
  flags.step.micro_batches = settled;
  set_config(flags, "micro-batches", settled, has_ranks ? "ranks" : "the run directory");
}

/// A run that began with timed choices, or without timing, goes on so where the command line does not say otherwise.
void settle_tuning(TrainFlags& flags, Communicator* communicator) {
  if (flags.tune_given) return;
  const nlohmann::json begun = begun_with(flags, "tune");
  const std::string own = begun == true ? "on" : begun == "full" || begun == "off" ? begun.get<std::string>() : "";
  const std::string settled = driver::Ranks(communicator).from_first(own);
  if (settled.empty()) return;
  flags.device.tune = settled;
  set_config(flags, "tune", settled == "on" ? nlohmann::json(true) : nlohmann::json(settled), "the run directory");
}

/// What the options that were not given stand for is in config.json, so that a run may go on with them spelled out.
void settle_defaults(TrainFlags& flags) {
  if (is_artifact(flags.model)) return;
  const nlohmann::json config = nlohmann::json::parse(flags.config_json);
  const auto settle = [&](const char* option, const nlohmann::json& value) {
    const nlohmann::json& entry = config.at(option);
    if (entry.at("from") == "default" && entry.at("value").empty()) set_config(flags, option, value, "default");
  };
  try {
    const driver::Optimizer optimizer = flags.optimizer.parse();
    settle("lr", flags.optimizer.rate());
    for (const auto& [option, name] : {std::pair("momentum", "momentum"), std::pair("dampening", "dampening"),
                                       std::pair("weight-decay", "weight_decay"), std::pair("eps", "eps")})
      if (optimizer.options().knows(name) && optimizer.options().has(name)) settle(option, optimizer.options().number(name));
    settle("precision", "f32");
    settle("schedule", "constant");
    nlohmann::json metrics = nlohmann::json::array();
    for (const passes::MetricSpec& metric : driver::metrics_of(flags.metric, driver::read_loss(flags.loss, flags.output)))
      metrics.push_back(metric.text);
    settle("metric", metrics);
  } catch (const UserError&) {}  // the run says why
}

/// Of several ranks. The first speaks for all; one that fails where the others do not know of it speaks for itself, and ends them.
class SpeakingRank {
 public:
  SpeakingRank(Console& console, Communicator& communicator) : console_(console), communicator_(communicator) {
    if (communicator.rank() != 0) console.silence();
  }

  /// All ranks end so. None before the first has spoken: a launcher ends all where one ends badly.
  [[noreturn]] void end(const std::string& message, int code, nlohmann::json results = {}) const {
    console_.error(concat("gcomp train: ", message));
    results["error"] = message;
    results["exit_code"] = code;
    console_.result_json(std::move(results));
    console_.silence();
    driver::Ranks(&communicator_).from_first("");
    throw Unfinished{message, code, nullptr};
  }
  /// This rank alone.
  [[noreturn]] void abort(const std::string& message, int code) const {
    console_.speak();
    console_.error(concat("gcomp train: ", message));
    console_.silence();
    communicator_.abort(code);
    throw Unfinished{message, code, nullptr};
  }
  std::string name() const {
    return concat("rank ", communicator_.rank(), " of ", communicator_.size(), " (", communicator_.host(), ")");
  }

 private:
  Console& console_;
  Communicator& communicator_;
};

void train(TrainFlags& flags, Console& console) {
  const OpenedRanks opened = open_ranks(flags.ranks, flags.words);
  settle_micro_batches(flags, opened.communicator.get());
  settle_tuning(flags, opened.communicator.get());
  settle_defaults(flags);
  if (!opened.communicator || opened.communicator->size() == 1) return train_rank(flags, console, opened);
  const SpeakingRank rank(console, *opened.communicator);
  try {
    train_rank(flags, console, opened);
  } catch (const RankFailed& failure) {
    rank.abort(failure.what(), static_cast<int>(failure.code()));
  } catch (const Unfinished& run) {
    rank.end(run.message, run.exit_code, run.results ? *run.results : nlohmann::json());
  } catch (const Error& error) {
    const bool internal = error.code() == ExitCode::internal;
    rank.end(concat(internal ? "internal error, a fault of gcomp: " : "", error.what()), static_cast<int>(error.code()));
  } catch (const std::bad_alloc&) {
    rank.abort(concat(rank.name(), ": out of memory"), static_cast<int>(ExitCode::out_of_memory));
  } catch (const std::exception& error) {
    rank.abort(concat(rank.name(), ": internal error, a fault of gcomp: ", error.what()), static_cast<int>(ExitCode::internal));
  }
}

void print_config(const nlohmann::json& config, const Console& console) {
  if (console.json()) return console.result_json({{"config", config}});
  console.result(config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

Command add_train(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<TrainFlags>();
  ArgumentParser parser = root.add_subcommand("train", "train a model on data, write the trained model");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx with a training step").required();
  flags->data.add_for_training(parser);
  Argument out = parser
                     .add_option("--out,-o", flags->out,
                                 "the trained model, .onnx (or .gcx with everything); with --run-dir it may be left out")
                     .type_name("FILE")
                     .required();
  parser.add_flag("--training", flags->training,
                  "BatchNormalization and Dropout that the file has in training form are written so (default: in inference form)");
  parser.add_flag("--export-preprocess", flags->export_preprocess,
                  "the .onnx takes what the program is fed, such as bytes of pixels, and begins with their normalization");
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  add_metric(parser, flags->metric);
  parser.add_option("--batch", flags->batch, "rows of one step").type_name("N");
  parser.add_option("--epochs", flags->epochs, "how often to go through the data").type_name("N");
  parser.add_option("--steps", flags->steps, "or how many steps to take").type_name("N");
  parser.add_option("--seed", flags->seed, "of the order of rows and of Dropout (default 0; a .gcx goes on with its own)")
      .type_name("N");
  parser.add_flag("--no-shuffle", flags->no_shuffle, "step i takes rows i * batch onwards");
  parser.add_option("--init", flags->init, "start from the weights of a .safetensors, .onnx or .gcx file, or of a checkpoint")
      .type_name("FILE");
  parser.add_flag("--partial", flags->partial,
                  "with --init: take what fits by name and shape, list what differs, as for a new head");
  parser.add_flag("--embed-model", flags->embed_model, "a .gcx keeps the .onnx file itself, not its path and SHA-256");
  parser.add_option("--metrics", flags->metrics, "one JSON object a line for each step and evaluation").type_name("JSONL");
  flags->model_options.add_precision(parser, "what floats compute in (default f32)");
  flags->model_options.add_loss_scale(parser);
  flags->model_options.add_shapes(parser);
  flags->model_options.add_selection(parser);
  flags->optimizer.add(parser);
  flags->step.add(parser);
  flags->run.add(parser);
  flags->lora.add(parser);
  flags->ranks.add(parser);
  parser.add_option("--out-ema", flags->out_ema, "with --ema: the model with the average of its parameters, .onnx")
      .type_name("FILE")
      .group("Parameter groups, clipping, average");
  parser
      .add_option("--schedule", flags->schedule,
                  concat(names_of(driver::schedule_definitions()),
                         ", or NAME(option=value, ...) (default constant; docs/training.md has the options)"))
      .type_name("NAME")
      .group("Learning rate schedule (PyTorch's formulas, lengths default to the run's)");
  parser.add_option("--warmup-steps", flags->warmup_steps, "steps in which the rate rises to --lr before the schedule starts")
      .type_name("N")
      .group("Learning rate schedule (PyTorch's formulas, lengths default to the run's)");
  flags->device.add(parser);
  flags->trust.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp train m.onnx --data train.npz --eval-data test.npz --loss cross_entropy --optimizer adamw --lr 1e-3 --batch 64 "
      "--epochs 20 --out trained.onnx\n"
      "  gcomp train m.onnx --data train.npz --loss mse --optimizer sgd --momentum 0.9 --nesterov --batch 32 --steps 500 --freeze "
      "'encoder.*' --out t.onnx\n"
      "  gcomp train m.onnx --data train.npz --loss bce --batch 8 --steps 10 --no-shuffle --precision f64 --metrics m.jsonl --out "
      "t.onnx\n"
      "  gcomp train t.gcx --data train.npz --lr 1e-4 --epochs 5 --out further.onnx\n"
      "  gcomp train m.onnx --data train.npz --eval-data test.npz --loss cross_entropy --batch 64 --epochs 20 --run-dir runs/a "
      "--checkpoint-every 10m --save-best accuracy\n\n"
      "A .gcx goes on where its training stopped: same order of rows, seed, optimizer state. SIGINT, SIGTERM, SIGHUP and SIGUSR1 "
      "end the "
      "run\n"
      "after the step and write the model as it is then (exit code 130, 143, 129; with --run-dir 75, and --resume goes on); a "
      "second\n"
      "one ends it at once.");
  const auto from_file = std::make_shared<std::set<std::string>>();
  return {parser,
          [parser, flags, from_file, &console] {
            const std::vector<std::string> given = parser.given();
            const auto is_given = [&](const char* flag) { return std::find(given.begin(), given.end(), flag) != given.end(); };
            flags->seed_given = is_given("--seed");
            flags->micro_batches_given = is_given("--micro-batches");
            flags->tune_given = is_given("--tune");
            const nlohmann::json config = config_json(parser, *from_file);
            if (flags->run.print_config) return print_config(config, console);
            flags->config_json = config.dump();
            if (is_artifact(flags->model)) refuse_decided(parser, flags->model);
            train(*flags, console);
          },
          [parser, flags, from_file, out](std::vector<std::string> words) mutable {
            flags->resume_command = resuming_command(words);
            flags->words = words;
            ExpandedCommand expanded = with_config_file(std::move(words), parser);
            *from_file = std::move(expanded.from_file);
            for (const std::string& word : expanded.arguments)
              if (word.starts_with("--run-dir") || word == "--plan-only" || word == "--print-config" || word == "--help" ||
                  word == "-h")
                out.required(false);
            return std::move(expanded.arguments);
          }};
}

}  // namespace gcomp::tools
