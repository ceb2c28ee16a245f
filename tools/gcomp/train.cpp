// gcomp train: ONNX (or .gcx) and .npz in, trained model out.
#include <algorithm>
#include <memory>

#include "ir/base/error.h"
<<<<<<< HEAD
#include "ir/base/units.h"
#include "runtime/atomic_file.h"
#include "runtime/batch_plan.h"
#include "runtime/metrics.h"
=======
>>>>>>> 6596608 (A training goes on from its .gcx to the bit and comes out as .onnx; signals and full disks leave the model that was trained)
#include "tools/gcomp/command.h"
#include "tools/gcomp/training_run.h"

namespace gcomp::tools {
namespace {

<<<<<<< HEAD
struct TrainFlags {
  std::string model, data, eval_data, loss, metrics, out;
  std::int64_t batch = 0, epochs = 0, steps = 0;
  std::uint64_t seed = 0;
  bool no_shuffle = false, training = false;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  DeviceOptions device;
};

/// A run in progress. The members are what the loop needs, in the order in which they are made.
class TrainingRun {
 public:
  TrainingRun(const TrainFlags& flags, const Console& console);
  void report() const;
  void train(const Interrupt& interrupt);
  void finish();

 private:
  Trainer make_trainer();
  void check_outputs();
  void start(std::int64_t step);
  void take_loss(std::int64_t step);
  void evaluate(std::int64_t epoch);
  void check_scale(std::int64_t step, const LossScaleStatus& scale);
  std::string where_loss_went(std::int64_t step, double loss, std::span<const std::int64_t> rows) const;

  const TrainFlags& flags_;
  const Console& console_;
  std::vector<std::string> names_;
  std::optional<runtime::Dataset> data_, eval_data_;
  CompileProgress compiling_{console_};  // outlives the trainer, which compiles for evaluation too
  std::optional<Trainer> trainer_;
  std::optional<runtime::BatchPlan> plan_;
  std::unique_ptr<runtime::MetricsWriter> metrics_;
  std::optional<BatchFeeder> feeder_;
  std::int64_t steps_ = 0;
  double loss_ = 0;
  std::int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  std::optional<Evaluation> evaluation_;
  double seconds_ = 0;
};

void check_flags(const TrainFlags& flags) {
  const auto usage = [](const std::string& message) { throw UserError(message, ExitCode::usage); };
  if ((flags.epochs > 0) == (flags.steps > 0)) usage("give either --epochs N or --steps N, at least 1");
  if (flags.epochs < 0 || flags.steps < 0) usage("--epochs and --steps: wanted 1 or more");
  if (flags.loss.empty() && !is_artifact(flags.model))
    usage("--loss is missing: cross_entropy, mse, l1, bce, bce_with_logits or output:NAME");
  if (flags.batch < 1 && !is_artifact(flags.model)) usage("--batch is missing, or below 1");
  if (flags.training && is_artifact(flags.out))
    usage(concat("--training: '", flags.out, "' is a .gcx, which holds both forms; it decides what is written as .onnx"));
  if (is_artifact(flags.model) && !is_artifact(flags.out)) usage("a .gcx holds no ONNX file, so --out must be a .gcx too");
}

TrainingRun::TrainingRun(const TrainFlags& flags, const Console& console) : flags_(flags), console_(console) {
  check_flags(flags);
  check_outputs();
  trainer_ = make_trainer();
  fit(*data_, *trainer_);
  if (eval_data_) {
    fit(*eval_data_, *trainer_);
    trainer_->prepare_evaluation();
  }
  console_.clear_status();
  steps_ = flags.steps > 0 ? flags.steps : flags.epochs * plan_->steps_per_epoch();
  feeder_.emplace(*data_, *trainer_);
}

/// A directory that is missing or read-only is found before any work.
void TrainingRun::check_outputs() {
  runtime::AtomicFile probe(flags_.out);
  if (!flags_.metrics.empty()) metrics_ = std::make_unique<runtime::MetricsWriter>(flags_.metrics);
}

Trainer TrainingRun::make_trainer() {
  const auto open_all = [&](std::int64_t batch) {
    data_ = open_data(flags_.data, names_);
    if (!flags_.eval_data.empty()) eval_data_ = open_data(flags_.eval_data, names_);
    plan_.emplace(data_->rows(), batch, flags_.seed,
                  flags_.no_shuffle ? runtime::RowOrder::sequential : runtime::RowOrder::shuffled);
  };
  if (is_artifact(flags_.model)) {
    runtime::DeviceOptions device = flags_.device.parse(console_);
    compiling_.watch(device);
    Trainer trainer = Trainer::load(flags_.model, device, flags_.device.request());
    names_ = trainer.input_names();
    open_all(trainer.batch());
    return trainer;
  }
  TrainOptions options;
  options.loss = flags_.loss;
  options.optimizer = flags_.optimizer.parse();
  options.learning_rate = flags_.optimizer.learning_rate;
  options.batch = flags_.batch;
  options.graph = flags_.model_options.parse();
  options.graph.seed = static_cast<std::int64_t>(flags_.seed);
  options.device = flags_.device.request();
  options.device_options = flags_.device.parse(console_);
  compiling_.watch(options.hooks, options.device_options);
  options.hooks.internal_error = [&](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console_, graph, error);
  };
  options.export_form = flags_.training ? frontend::ExportForm::as_written : frontend::ExportForm::inference;
  passes::parse_loss(flags_.loss);
  const Model model = Model::load(flags_.model);
  names_ = array_names(model.inputs(), flags_.loss);
  open_all(flags_.batch);
  options.graph.shapes.data = types_of(*data_, names_);
  options.graph.shapes.data_source = flags_.data;
  console_.say(concat("compiling the training step of '", flags_.model, "' for batches of ", flags_.batch));
  return Trainer(model, options);
}

void TrainingRun::report() const {
  if (is_artifact(flags_.model)) console_.say(concat("training step of '", flags_.model, "', batches of ", plan_->batch()));
  else report_parameters(console_, trainer_->model());
  const std::vector<std::string>& outputs = trainer_->model().outputs;
  if (outputs.size() > 1 && passes::parse_loss(flags_.loss).kind != passes::LossKind::output)
    console_.say(concat("loss: ", flags_.loss, " of '", outputs[0], "', the first of ", outputs.size(), " outputs"));
  console_.say("device: " + trainer_->device());
  console_.say(concat("data: '", flags_.data, "', ", grouped(data_->rows()), " rows, ", plan_->steps_per_epoch(),
                      " steps an epoch, ", flags_.no_shuffle ? "in order" : concat("shuffled with seed ", flags_.seed)));
  if (plan_->dropped_rows() > 0)
    console_.say(concat("each epoch drops the last ", plan_->dropped_rows(), plan_->dropped_rows() == 1 ? " row" : " rows",
                        ", which fill no batch of ", plan_->batch()));
}

std::string TrainingRun::where_loss_went(std::int64_t step, double loss, std::span<const std::int64_t> rows) const {
  const std::string culprit = find_non_finite(*data_, names_, rows);
  return concat("step ", step + 1, " (epoch ", plan_->epoch_of(step) + 1, "): the loss is ", loss, "; '", flags_.out,
                "' is not written. ",
                culprit.empty() ? concat("A smaller --lr than ", flags_.optimizer.learning_rate, " often helps") : culprit);
}

void TrainingRun::start(std::int64_t step) {
  const std::span<const std::int64_t> rows = plan_->rows_of(step);
  feeder_->load(rows);
  on_rows(
      *trainer_, *data_, [&] { trainer_->start(); }, [&] { return rows; });
}

void TrainingRun::take_loss(std::int64_t step) {
  loss_ = on_rows(
      *trainer_, *data_, [&] { return trainer_->take_loss(); }, [&] { return plan_->rows_of(step); });
  const std::optional<LossScaleStatus> scale = trainer_->loss_scale();
  std::vector<runtime::Metric> metric{{"step", step + 1}, {"epoch", plan_->epoch_of(step) + 1}, {"loss", loss_}};
  if (scale) metric.insert(metric.end(), {{"loss_scale", scale->scale}, {"skipped", std::int64_t{scale->skipped}}});
  if (metrics_) metrics_->write(metric);
  if (scale) check_scale(step, *scale);
  if (!scale && !std::isfinite(loss_)) throw UserError(where_loss_went(step, loss_, plan_->rows_of(step)), ExitCode::numeric);
}

/// A step that overflows is skipped; steps that all do end the run, where the scale says so: below 1 it no longer scales up. A
/// constant one gets the patience that a dynamic one has from its first value on.
void TrainingRun::check_scale(std::int64_t step, const LossScaleStatus& scale) {
  constexpr std::int64_t kPatience = 17;
  skipped_ += scale.skipped;
  skipped_in_a_row_ = scale.skipped ? skipped_in_a_row_ + 1 : 0;
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
  if (metrics_) metrics_->write(metric);
}

void TrainingRun::train(const Interrupt& interrupt) {
  Progress progress(console_, steps_, flags_.epochs, plan_->batch());
  for (std::int64_t step = 0; step < steps_; ++step) {
    start(step);
    const bool last = step + 1 == steps_, epoch_ends = (step + 1) % plan_->steps_per_epoch() == 0;
    const bool interrupted = interrupt.requested(), pause = interrupted || last || (eval_data_ && epoch_ends);
    // A GPU computes this step while the loss of the one before is read.
    while (trainer_->pending() > (pause ? 0 : trainer_->most_pending() - 1)) {
      const std::int64_t done = step + 1 - trainer_->pending();
      take_loss(done);
      progress.update({done + 1, plan_->epoch_of(done) + 1, loss_});
    }
    if (interrupted) {
      progress.clear();
      throw Interrupted{concat("interrupted after step ", step + 1, " of ", steps_, "; '", flags_.out, "' is not written")};
    }
    if (!eval_data_ || (!last && !epoch_ends)) continue;
    evaluate(plan_->epoch_of(step) + 1);
    progress.clear();
    char text[128];
    std::snprintf(text, sizeof text, "epoch %lld: test loss %.6g", static_cast<long long>(plan_->epoch_of(step) + 1),
                  evaluation_->loss);
    std::string line = text;
    if (evaluation_->accuracy)
      std::snprintf(text, sizeof text, ", test accuracy %.1f %%", 100 * *evaluation_->accuracy), line += text;
    console_.say(line);
  }
  progress.clear();
  seconds_ = progress.seconds();
}

void TrainingRun::finish() {
  try {
    trainer_->check_finite();
  } catch (const UserError& error) {
    throw UserError(concat("after step ", steps_, ": ", error.what(), "; '", flags_.out, "' is not written"), error.code());
  }
  const std::string digest = trainer_->weights_digest();
  trainer_->save(flags_.out);
  if (!flags_.training && !is_artifact(flags_.out))
    report_forms(console_, flags_.out, trainer_->model().forms.training,
                 "written in inference form (--training keeps them as in training)");
  char text[160];
  std::snprintf(text, sizeof text, ", last loss %.9g", loss_);
  console_.result(concat("trained ", steps_, steps_ == 1 ? " step in " : " steps in ", time_text(seconds_), " (",
                         rows_rate_text(static_cast<double>(steps_ * plan_->batch()) / seconds_), ")", text));
  console_.result(concat("wrote '", flags_.out, "', seed ", flags_.seed, ", weights ", digest.substr(0, 16)));
  if (skipped_ > 0)
    console_.result(concat(skipped_, skipped_ == 1 ? " step was" : " steps were", " skipped: gradients overflowed f16, loss scale ",
                           trainer_->loss_scale()->scale));
  nlohmann::json json{{"out", flags_.out},
                      {"steps", steps_},
                      {"loss", loss_},
                      {"seconds", seconds_},
                      {"seed", flags_.seed},
                      {"weights_sha256", digest},
                      {"dropped_rows", plan_->dropped_rows()}};
  if (trainer_->loss_scale()) json["skipped_steps"] = skipped_;
  if (evaluation_) {
    json["eval"] = {{"data", flags_.eval_data}, {"loss", evaluation_->loss}, {"rows", evaluation_->rows}};
    if (evaluation_->accuracy) {
      json["eval"]["accuracy"] = *evaluation_->accuracy;
      std::snprintf(text, sizeof text, "test accuracy %.1f %%", 100 * *evaluation_->accuracy);
      console_.result(text);
    }
  }
  console_.result_json(std::move(json));
}

/// From reading to writing, Ctrl-C is noted: the step ends, and what is being written becomes whole or goes.
=======
/// From reading to writing a signal is noted: what compiles stops, a step ends, and what is being written becomes whole.
>>>>>>> 6596608 (A training goes on from its .gcx to the bit and comes out as .onnx; signals and full disks leave the model that was trained)
void train(const TrainFlags& flags, const Console& console) {
  const Interrupt interrupt;
  std::optional<TrainingRun> run;
  try {
    run.emplace(flags, console, interrupt);
  } catch (const Error&) {
    if (interrupt.signal() == 0) throw;
    throw Unfinished{
        concat("interrupted by ", name_of_signal(interrupt.signal()), " before the first step; '", flags.out, "' is not written"),
        exit_code_of_signal(interrupt.signal()), nullptr};
  }
  run->report();
  run->train();
  run->finish();
}

}  // namespace

Command add_train(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<TrainFlags>();
  ArgumentParser parser = root.add_subcommand("train", "train a model on the arrays of an .npz, write the trained model");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx with a training step").required();
  parser.add_option("--data", flags->data, "arrays named after the model's inputs, and 'label'").type_name("NPZ").required();
  parser.add_option("--eval-data", flags->eval_data, "evaluated after every epoch, in inference form").type_name("NPZ");
  parser.add_option("--out,-o", flags->out, "the trained model, .onnx (or .gcx with everything)").type_name("FILE").required();
  parser.add_flag("--training", flags->training,
                  "BatchNormalization and Dropout that the file has in training form are written so (default: in inference form)");
  add_loss(parser, flags->loss);
  parser.add_option("--batch", flags->batch, "rows of one step").type_name("N");
  parser.add_option("--epochs", flags->epochs, "how often to go through the data").type_name("N");
  parser.add_option("--steps", flags->steps, "or how many steps to take").type_name("N");
  parser.add_option("--seed", flags->seed, "of the order of rows and of Dropout (default 0; a .gcx goes on with its own)")
      .type_name("N");
  parser.add_flag("--no-shuffle", flags->no_shuffle, "step i takes rows i * batch onwards");
  parser.add_flag("--embed-model", flags->embed_model, "a .gcx keeps the .onnx file itself, not its path and SHA-256");
  parser.add_option("--metrics", flags->metrics, "one JSON object a line for each step and evaluation").type_name("JSONL");
  flags->model_options.add_precision(parser, "what floats compute in (default f32)");
  flags->model_options.add_loss_scale(parser);
  flags->model_options.add_shapes(parser);
  flags->model_options.add_selection(parser);
  flags->optimizer.add(parser);
  flags->device.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp train m.onnx --data train.npz --eval-data test.npz --loss cross_entropy --optimizer adamw --lr 1e-3 --batch 64 "
      "--epochs 20 --out trained.onnx\n"
      "  gcomp train m.onnx --data train.npz --loss mse --optimizer sgd --momentum 0.9 --nesterov --batch 32 --steps 500 --freeze "
      "'encoder.*' --out t.onnx\n"
      "  gcomp train m.onnx --data train.npz --loss bce --batch 8 --steps 10 --no-shuffle --precision f64 --metrics m.jsonl --out "
      "t.onnx\n"
      "  gcomp train t.gcx --data train.npz --lr 1e-4 --epochs 5 --out further.onnx\n\n"
      "A .gcx goes on where its training stopped: same order of rows, seed, optimizer state. SIGINT, SIGTERM and SIGHUP end the "
      "run\n"
      "after the step and write the model as it is then (exit code 130, 143, 129); a second one ends it at once.");
  return {parser, [parser, flags, &console] {
            const std::vector<std::string> given = parser.given();
            flags->seed_given = std::find(given.begin(), given.end(), "--seed") != given.end();
            if (is_artifact(flags->model)) refuse_decided(parser, flags->model);
            train(*flags, console);
          }};
}

}  // namespace gcomp::tools
