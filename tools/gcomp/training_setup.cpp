#include <algorithm>

#include "gcomp/driver/model_source.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_run.h"

namespace gcomp::tools {
namespace {

[[noreturn]] void refuse_flags(const std::string& message) { throw UserError(message, ExitCode::usage); }

void check_train_flags(const TrainFlags& flags) {
  if ((flags.epochs > 0) == (flags.steps > 0)) refuse_flags("give either --epochs N or --steps N, at least 1");
  if (flags.epochs < 0 || flags.steps < 0) refuse_flags("--epochs and --steps: wanted 1 or more");
  if (flags.loss.empty() && !is_artifact(flags.model)) refuse_flags(missing_loss("--loss is missing"));
  require_batch(flags.batch);
  if (flags.batch == 0 && !is_artifact(flags.model))
    refuse_flags("--batch is missing: give the rows of a step, such as --batch 32");
  if (flags.warmup_steps < 0) refuse_flags("--warmup-steps: wanted 0 or more");
  if (flags.out.empty()) refuse_flags("--out is empty: give a name that ends in .onnx or .gcx");
  if (flags.training && is_artifact(flags.out))
    refuse_flags(concat("--training: '", flags.out, "' is a .gcx, which holds both forms; it decides what is written as .onnx"));
  if (!flags.out_ema.empty() && !flags.step.ema && !is_artifact(flags.model))
    refuse_flags(concat("--out-ema ", flags.out_ema, ": no average is kept; --ema 0.999 keeps one"));
  if (flags.embed_model && !is_artifact(flags.out)) refuse_flags("--embed-model has a meaning only with --out NAME.gcx");
}

Outputs outputs_of(const TrainFlags& flags) {
  check_train_flags(flags);
  std::vector<Output> files{
      {"--out", flags.out, kTrainedEndings}, {"--out-ema", flags.out_ema, {".onnx"}}, {"--metrics", flags.metrics}};
  for (Output& file : flags.lora.outputs()) files.push_back(std::move(file));
  Outputs outputs(std::move(files));
  flags.lora.protect(outputs);
  outputs.protect("model", flags.model);
  outputs.protect("data", flags.data);
  if (!flags.eval_data.empty()) outputs.protect("evaluation data", flags.eval_data);
  return outputs;
}

}  // namespace

TrainingRun::TrainingRun(const TrainFlags& flags, const Console& console, const Interrupt& interrupt)
    : flags_(flags), console_(console), interrupt_(interrupt), outputs_(outputs_of(flags)) {
  for (const std::string& out : {flags_.out, flags_.out_ema})  // a directory that is missing or read-only is found before any work
    if (!out.empty()) runtime::AtomicFile{out};
  metrics_ = std::make_unique<MetricsLog>(flags_.metrics, console_);
  if (!flags_.schedule.empty() || flags_.warmup_steps > 0)
    schedule_.emplace(flags_.schedule.empty() ? "constant" : flags_.schedule);
  trainer_ = make_trainer();
  if (flags_.optimizer.learning_rate) trainer_->set_learning_rate(flags_.optimizer.rate());
  if (flags_.embed_model) trainer_->set_keep_model(KeepModel::whole);
  fit(*data_, *trainer_);
  if (eval_data_) fit(*eval_data_, *trainer_);
  if (eval_data_) trainer_->prepare_evaluation();
  if (is_artifact(flags_.out)) driver::prepare_artifact(*trainer_);
  if (!flags_.out_ema.empty() && !trainer_->keeps_average())
    refuse_flags(concat("--out-ema ", flags_.out_ema, ": '", flags_.model, "' was compiled without --ema"));
  if (!is_artifact(flags_.out) || flags_.embed_model || !flags_.out_ema.empty()) trainer_->prepare_export();
  flags_.lora.check(*trainer_);
  if (flags_.training) trainer_->set_export_form(ExportForm::as_written);
  outputs_.protect_model(driver::model_files(*trainer_));
  steps_ = flags.steps > 0 ? flags.steps : flags.epochs * plan_->steps_per_epoch();
  bind_schedule();
  feeder_.emplace(*data_, *trainer_);
  throw_if_interrupted();
  setting_up_ = false;
  console_.clear_status();
}

void TrainingRun::throw_if_interrupted() const {
  if (interrupt_.signal() != 0) throw UserError("interrupted");
}

runtime::DeviceOptions TrainingRun::device_options() {
  runtime::DeviceOptions options = flags_.device.parse(console_);
  options.cancelled = [this] { return setting_up_ && interrupt_.signal() != 0; };
  return options;
}

void TrainingRun::open_all(std::int64_t batch) {
  data_ = open_data(flags_.data, names_);
  if (!flags_.eval_data.empty()) eval_data_ = open_data(flags_.eval_data, names_);
  position_.rows = data_->rows();
  plan_.emplace(data_->rows(), batch, position_.seed,
                position_.shuffled ? runtime::RowOrder::shuffled : runtime::RowOrder::sequential);
}

/// Steps count from the start of the data, as the schedule's do, so that a run that goes on goes on in its schedule too.
void TrainingRun::bind_schedule() {
  base_rate_ = trainer_->learning_rate();
  const bool turns = schedule_ && schedule_->turns_momentum();
  if (trainer_->takes_momentum() && !turns)
    refuse_flags(
        concat("'", flags_.model, "' was compiled for a schedule that turns the momentum; give it, such as --schedule one_cycle"));
  if (!trainer_->takes_momentum() && turns)
    refuse_flags(concat("--schedule ", flags_.schedule, ": '", flags_.model,
                        "' was compiled for a momentum that stays; cycle_momentum=false leaves it"));
  if (schedule_) schedule_->bind({base_rate_, position_.steps + steps_, flags_.warmup_steps});
}

Trainer TrainingRun::make_trainer() { return is_artifact(flags_.model) ? load_trainer() : compile_trainer(); }

Trainer TrainingRun::load_trainer() {
  runtime::DeviceOptions device = device_options();
  compiling_.watch(device);
  Trainer trainer = Trainer::load(flags_.model, device, flags_.device.request(), flags_.trust.parse(flags_.model));
  names_ = trainer.input_names();
  const DataPosition before = trainer.data_position();
  if (before.steps == 0) {
    position_ = {.seed = flags_.seed_given ? flags_.seed : before.seed, .shuffled = !flags_.no_shuffle};
    if (flags_.seed_given) trainer.set_seed(flags_.seed);
  } else {
    position_ = before;
    if (flags_.seed_given && flags_.seed != before.seed)
      refuse_flags(concat("--seed ", flags_.seed, ": '", flags_.model, "' was trained ", before.steps, " steps with seed ",
                          before.seed, " and goes on with it; leave --seed out"));
    if (flags_.no_shuffle && before.shuffled)
      refuse_flags(concat("--no-shuffle: '", flags_.model, "' was trained ", before.steps,
                          " steps on shuffled rows and goes on so; leave it out"));
  }
  open_all(trainer.batch());
  if (before.steps > 0 && before.rows != data_->rows()) {
    position_.steps = 0;
    console_.say(concat("'", flags_.model, "' was trained on ", before.rows, " rows, '", flags_.data, "' has ", data_->rows(),
                        ": its rows are gone through from the start"));
  }
  return trainer;
}

Trainer TrainingRun::compile_trainer() {
  flags_.trust.parse(flags_.model);
  driver::TrainOptions options;
  options.loss = flags_.loss;
  options.output = flags_.output;
  options.metrics = flags_.metric;
  options.optimizer = flags_.optimizer.parse();
  options.learning_rate = flags_.optimizer.rate();
  if (schedule_ && schedule_->turns_momentum()) options.optimizer.turn_momentum("--schedule " + flags_.schedule);
  options.batch = flags_.batch;
  options.graph = flags_.model_options.parse();
  options.graph.seed = static_cast<std::int64_t>(flags_.seed);
  options.graph.step = flags_.step.parse(options.learning_rate);
  options.graph.lora = flags_.lora.parse();
  options.device = flags_.device.request();
  options.device_options = device_options();
  compiling_.watch(options.hooks, options.device_options);
  options.keep_model = flags_.embed_model ? KeepModel::whole : KeepModel::by_reference;
  options.hooks.pass = [this](std::string_view, const ir::Graph&, bool, double) { throw_if_interrupted(); };
  options.hooks.internal_error = [&](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console_, graph, error);
  };
  const driver::LossSpec loss = passes::parse_loss(flags_.loss, flags_.output);
  const std::vector<passes::MetricSpec> metrics = driver::metrics_of(flags_.metric, loss);
  const Model model = Model::load(flags_.model);
  require_output(flags_.output, model, "--out");
  outputs_.protect_model(driver::onnx_file(model)->files);
  require_names(model, loss, metrics, flags_.data);
  names_ = array_names(model, loss, metrics);
  position_ = {.seed = flags_.seed, .shuffled = !flags_.no_shuffle};
  open_all(flags_.batch);
  options.graph.shapes.data = types_of(*data_, names_);
  options.graph.shapes.data_source = flags_.data;
  console_.say(concat("compiling the training step of '", flags_.model, "' for batches of ", flags_.batch));
  return driver::make_trainer(model, options);
}

void TrainingRun::report_step() {
  report_groups(console_, *trainer_, base_rate_);
  if (trainer_->keeps_average() && !eval_data_ && flags_.out_ema.empty() && !is_artifact(flags_.out))
    console_.warn("the average of the parameters is written nowhere: --out-ema FILE writes it");
}

void TrainingRun::report() {
  if (is_artifact(flags_.model)) console_.say(concat("training step of '", flags_.model, "', batches of ", plan_->batch()));
  else report_parameters(console_, driver::imported_model(*trainer_));
  if (!is_artifact(flags_.model)) report_outputs(console_, driver::imported_model(*trainer_), flags_.loss, trainer_->loss_output());
  report_step();
  console_.say("device: " + trainer_->device());
  console_.say(concat("data: '", flags_.data, "', ", grouped(data_->rows()), " rows, ", plan_->steps_per_epoch(),
                      " steps an epoch, ", position_.shuffled ? concat("shuffled with seed ", position_.seed) : "in order"));
  if (schedule_) {
    const std::int64_t first = position_.steps, last = first + steps_ - 1;
    console_.say(concat(
        "schedule: ", schedule_->text(), flags_.warmup_steps > 0 ? concat(" after ", flags_.warmup_steps, " steps of warm-up") : "",
        ", learning rate ", schedule_->rate(first), " at step ", first + 1, ", ", schedule_->rate((first + last) / 2), " at step ",
        (first + last) / 2 + 1, ", ", schedule_->rate(last), " at step ", last + 1));
  }
  if (position_.steps > 0)
    console_.say(concat("goes on after ", grouped(position_.steps), " steps: epoch ", plan_->epoch_of(position_.steps) + 1,
                        ", step ", position_.steps % plan_->steps_per_epoch() + 1, " of ", plan_->steps_per_epoch(),
                        ", learning rate ", trainer_->learning_rate()));
  if (plan_->dropped_rows() > 0)
    console_.say(concat("each epoch drops the last ", plan_->dropped_rows(), plan_->dropped_rows() == 1 ? " row" : " rows",
                        ", which fill no batch of ", plan_->batch()));
}

}  // namespace gcomp::tools
