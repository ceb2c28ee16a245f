#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/transforms/transforms.h"
#include "gcomp/driver/fit/batch_feeder.h"
#include "gcomp/driver/kept_names.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/initialize.h"
#include "ir/base/error.h"
#include "runtime/batch_plan.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/files/atomic_file.h"
#include "tools/gcomp/class_weights.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_run.h"

namespace gcomp::tools {
namespace {

[[noreturn]] void refuse_flags(const std::string& message) { throw UserError(message, ExitCode::usage); }

/// Where the value of an option, such as "zero", comes from: "default", "command line", "file", ...
std::string origin_of(const TrainFlags& flags, const char* option) {
  return nlohmann::json::parse(flags.config_json).at(option).at("from").get<std::string>();
}
bool gives(const TrainFlags& flags, const char* option) {
  const std::string origin = origin_of(flags, option);
  return origin == "command line" || origin == "file";
}

/// What would be passed over in silence.
void check_idle_flags(const TrainFlags& flags) {
  if (flags.batch == 0 && gives(flags, "batch")) refuse_flags("--batch 0: wanted 1 or more");
  if (flags.ranks.ranks == 0 && gives(flags, "ranks")) refuse_flags("--ranks 0: wanted 1 or more");
  if (flags.ranks.overlap && flags.ranks.no_overlap)
    refuse_flags("--overlap and --no-overlap: exchanges go on beside the computing, or they do not; give one of them");
  if (!flags.data.request.eval_augment.empty() && flags.data.evaluated().empty() && !is_artifact(flags.out))
    refuse_flags("--eval-augment: nothing is evaluated; --eval-data or --split says on which rows");
  require_different(flags.metric);
}

/// A batch that nobody cut, but for the ranks.
void check_shards(const TrainFlags& flags) {
  const std::int64_t shards = flags.step.micro_batches;
  if (origin_of(flags, "micro-batches") != "ranks" || shards < 1 || flags.batch % shards == 0) return;
  refuse_flags(concat("--batch ", flags.batch, ": ranks share a batch that is cut into ", shards,
                      " equal parts, so that their number changes nothing; wanted a multiple of ", shards,
                      ", or --micro-batches N with N equal parts"));
}

/// What is asked of ranks where there are none, and of parts of a batch where it is whole.
void note_idle_flags(const TrainFlags& flags, const Console& console) {
  if (flags.step.sync_batchnorm && flags.step.micro_batches == 1)
    console.say("note: --sync-batchnorm changes nothing: without --micro-batches and ranks a batch is whole");
  for (const char* option : {"zero", "bucket-mib", "overlap", "no-overlap", "time-exchanges", "mpi-plugin"})
    if (gives(flags, option))
      console.say(concat("note: --", option, " changes nothing: one process trains alone (--ranks N starts several)"));
}

/// The numbers that standardize() has of the training rows: an .onnx does not hold them.
void say_statistics(const TrainFlags& flags, const driver::OpenedData& data, const Console& console) {
  const driver::DataRequest& request = flags.data.request;
  if (!data::find_without_statistics(data::parse_transforms(request.eval_augment.empty() ? request.augment : request.eval_augment)))
    return;
  console.say(concat("note: standardize() takes mean and std of the training rows, which a .gcx keeps",
                     flags.export_preprocess ? " and the .onnx begins with" : "; gcomp eval and run of an .onnx need",
                     ": --augment \"", data.preprocessing, "\""));
}

void check_train_flags(const TrainFlags& flags) {
  if ((flags.epochs > 0) == (flags.steps > 0)) refuse_flags("give either --epochs N or --steps N, at least 1");
  if (flags.epochs < 0 || flags.steps < 0) refuse_flags("--epochs and --steps: wanted 1 or more");
  if (flags.loss.empty() && !is_artifact(flags.model)) refuse_flags(missing_loss("--loss is missing"));
  require_batch(flags.batch);
  check_idle_flags(flags);
  if (flags.batch == 0 && !is_artifact(flags.model))
    refuse_flags("--batch is missing: give the rows of a step, such as --batch 32");
  require_from(0, "--warmup-steps", flags.warmup_steps);
  check_shards(flags);
  flags.run.check();
  if (flags.run.run_dir.empty() && !flags.run.plan_only) require_path(flags.out, "--out", flags.output);
  if (flags.training && is_artifact(flags.out))
    refuse_flags(concat("--training: '", flags.out, "' is a .gcx, which holds both forms; it decides what is written as .onnx"));
  if (!flags.out_ema.empty() && !flags.step.ema && !is_artifact(flags.model))
    refuse_flags(concat("--out-ema ", flags.out_ema, ": no average is kept; --ema 0.999 keeps one"));
  if (flags.partial && flags.init.empty()) refuse_flags("--partial has a meaning only with --init FILE");
  if (!flags.metric.empty() && flags.data.evaluated().empty() && !is_artifact(flags.out))
    refuse_flags("--metric: nothing is evaluated; --eval-data or --split says on which rows");
  if (flags.embed_model && !is_artifact(flags.out)) refuse_flags("--embed-model has a meaning only with --out NAME.gcx");
}

Outputs outputs_of(const TrainFlags& flags) {
  check_train_flags(flags);
  std::vector<Output> files{
      {"--out", flags.out, kTrainedEndings}, {"--out-ema", flags.out_ema, {".onnx"}}, {"--metrics", flags.metrics}};
  for (Output& file : flags.lora.outputs()) files.push_back(std::move(file));
  Outputs outputs(std::move(files), flags.run.run_dir);
  flags.lora.protect(outputs);
  outputs.protect("model", flags.model);
  const driver::DataRequest& data = flags.data.request;
  for (const std::string& path : driver::paths_of({.data = data.data, .eval_data = {}})) outputs.protect("data", path);
  for (const std::string& path : driver::paths_of({.data = {}, .eval_data = data.eval_data}))
    outputs.protect("evaluation data", path);
  if (const std::string file = driver::loss_file_of(flags.loss); !file.empty()) outputs.protect("loss graph", file);
  if (!flags.init.empty()) outputs.protect("file of initial weights", flags.init);
  if (flags.run.overwrite && !flags.run.config.empty()) outputs.protect("configuration", flags.run.config);
  return outputs;
}

}  // namespace

TrainingRun::TrainingRun(const TrainFlags& flags, const Console& console, const Interrupt& interrupt, const OpenedRanks& ranks)
    : flags_(flags),
      console_(console),
      interrupt_(interrupt),
      opened_(ranks),
      ranks_(ranks.communicator.get()),
      outputs_(outputs_of(flags)) {
  const bool plans_to_go_on = flags_.run.plan_only && flags_.run.resume && std::filesystem::exists(flags_.run.run_dir);
  if (!flags_.run.run_dir.empty() && (!flags_.run.plan_only || plans_to_go_on) && ranks_.is_first()) {
    directory_.emplace(flags_.run.run_dir, flags_.run.earlier());
    directory_->set_config(flags_.config_json);
    copy_.emplace(console_, [this](std::string_view line) { directory_->log(line); });
  }
  for (const std::string& out : {flags_.out, flags_.out_ema})  // a directory that is missing or read-only is found before any work
    if (!out.empty() && ranks_.is_first()) runtime::AtomicFile{out};
  if (!opened_.communicator && flags_.ranks.ranks == 0) note_idle_flags(flags_, console_);
  metrics_ = std::make_unique<MetricsLog>(flags_.run.plan_only || !ranks_.is_first() ? "" : flags_.metrics, console_);
  trainer_ = make_trainer();
  if (!flags_.init.empty()) initialize_weights();
  check_schedule();
  if (flags_.optimizer.learning_rate) trainer_->set_learning_rate(flags_.optimizer.rate());
  driver::check_data(*data_.train, *trainer_);
  if (data_.eval) driver::check_data(*data_.eval, *trainer_);
  if (ranks_.is_first()) prepare_outputs();
}

/// What saving needs is there before the first step.
void TrainingRun::prepare_outputs() {
  if (flags_.embed_model) trainer_->set_keep_model(KeepModel::whole);
  if (is_artifact(flags_.out)) driver::prepare_artifact(*trainer_);
  if (const std::string why = driver::why_not_exported_later(*trainer_); is_artifact(flags_.out) && !why.empty())
    console_.warn(concat("--out ", flags_.out,
                         " cannot be exported later, since --init gives the model other weights than its file's, and ", why,
                         "; --out NAME.onnx can be written"));
  if (!flags_.out_ema.empty() && !trainer_->keeps_average())
    refuse_flags(concat("--out-ema ", flags_.out_ema, ": '", flags_.model, "' was compiled without --ema"));
  const bool exports = flags_.out.empty() ? driver::comes_from_onnx(*trainer_) : !is_artifact(flags_.out);
  if (exports || flags_.embed_model || !flags_.out_ema.empty()) trainer_->prepare_export();
  flags_.lora.check(*trainer_);
  if (flags_.training) trainer_->set_export_form(ExportForm::as_written);
  if (flags_.export_preprocess) trainer_->set_export_preprocessing(true);
  outputs_.protect_model(driver::model_files(*trainer_));
}

void TrainingRun::initialize_weights() {
  try {
    const InitReport report = initialize(*trainer_, flags_.init, {.partial = flags_.partial});
    const std::size_t taken = report.taken.size(), others = report.differences.size();
    console_.say(concat("--init '", flags_.init, "': ", taken, taken == 1 ? " weight is taken" : " weights are taken",
                        others == 0 ? "" : concat(", ", others, others == 1 ? " differs:" : " differ:")));
    for (const InitDifference& difference : report.differences)
      console_.say(concat("  '", difference.name, "' ", difference.reason));
  } catch (const UserError& error) { throw UserError(concat("--init: ", error.what()), error.code()); }
}

void TrainingRun::throw_if_interrupted() const {
  if (interrupt_.signal() != 0) throw UserError("interrupted");
}

runtime::DeviceOptions TrainingRun::device_options() {
  runtime::DeviceOptions options = flags_.device.parse(console_);
  options.cancelled = [this] { return setting_up_ && interrupt_.signal() != 0; };
  options.communicator = opened_.communicator.get();
  if (directory_) options.timed_choices = directory_->timed_choices();
  if (flags_.ranks.overlap) options.overlap = true;
  if (flags_.ranks.no_overlap) options.overlap = false;
  if (options.threads == 0 && opened_.on_this_machine > 1)
    options.threads = std::max(1, runtime::cpu::available_processors() / opened_.on_this_machine);
  return options;
}

void TrainingRun::take_data(driver::OpenedData data, std::int64_t batch) {
  data_ = std::move(data);
  say_statistics(flags_, data_, console_);
  runtime::check_batch(data_.train->rows(), batch);
}

/// What --drop-last false cannot do with these rows, before anything is compiled.
void TrainingRun::check_last_rows() const {
  const std::int64_t left = data_.train->rows() % flags_.batch, parts = flags_.step.micro_batches;
  if (flags_.run.drop_last != "false" || left == 0) return;
  if (is_artifact(flags_.out))
    refuse_flags(concat("--drop-last false: --out ", flags_.out,
                        " would hold the step of whole batches alone and go on with other rows; write .onnx"));
  if (parts > 1 && left % parts != 0)
    refuse_flags(concat("--drop-last false: the last ", left, left == 1 ? " row" : " rows", " of each epoch, of ",
                        data_.train->rows(), ", fill no batch of ", flags_.batch, ", and --micro-batches ", parts,
                        " does not divide them; leave --drop-last out, or give --micro-batches ", std::gcd(left, parts)));
}

/// Of a .gcx, which was compiled for a momentum that a schedule turns, or for one that stays.
void TrainingRun::check_schedule() const {
  const bool turns = !flags_.schedule.empty() && driver::Schedule(flags_.schedule).turns_momentum();
  if (trainer_->takes_momentum() && !turns)
    refuse_flags(
        concat("'", flags_.model, "' was compiled for a schedule that turns the momentum; give it, such as --schedule one_cycle"));
  if (!trainer_->takes_momentum() && turns)
    refuse_flags(concat("--schedule ", flags_.schedule, ": '", flags_.model,
                        "' was compiled for a momentum that stays; cycle_momentum=false leaves it"));
}

Trainer TrainingRun::make_trainer() { return is_artifact(flags_.model) ? load_trainer() : compile_trainer(); }

Trainer TrainingRun::load_trainer() {
  if (ranks_.several())
    refuse_flags(
        concat("'", flags_.model, "' holds the step of one process, and ", ranks_.size(), " ranks run; train from the .onnx"));
  runtime::DeviceOptions device = device_options();
  compiling_.watch(device);
  Trainer trainer = Trainer::load(flags_.model, device, flags_.device.request(), flags_.trust.parse(flags_.model));
  for (const std::string& note : trainer.notes()) console_.say("note: " + note);
  const DataPosition before = trainer.data_position();
  if (before.steps == 0 && flags_.seed_given) trainer.set_seed(flags_.seed);
  if (before.steps > 0 && flags_.seed_given && flags_.seed != before.seed)
    refuse_flags(concat("--seed ", flags_.seed, ": '", flags_.model, "' was trained ", before.steps, " steps with seed ",
                        before.seed, " and goes on with it; leave --seed out"));
  if (before.steps > 0 && flags_.no_shuffle && before.shuffled)
    refuse_flags(concat("--no-shuffle: '", flags_.model, "' was trained ", before.steps,
                        " steps on shuffled rows and goes on so; leave it out"));
  const std::vector<data::WantedArray> wanted = driver::wanted_arrays(trainer);
  driver::OpenedData data = driver::open_data(flags_.data.request, trainer, wanted);
  say_notes(console_, data, wanted);
  take_data(std::move(data), trainer.batch());
  return trainer;
}

Trainer TrainingRun::compile_trainer() {
  flags_.trust.parse(flags_.model);
  if (ranks_.several() && is_artifact(flags_.out))
    refuse_flags(concat("--out ", flags_.out, ": a .gcx would hold the step of ", ranks_.size(),
                        " ranks; write .onnx, and --run-dir for what goes on"));
  driver::TrainOptions options;
  options.loss = with_class_weights(flags_.loss, flags_.data.text());
  options.output = flags_.output;
  options.metrics = flags_.metric;
  options.optimizer = flags_.optimizer.parse();
  options.learning_rate = flags_.optimizer.rate();
  if (!flags_.schedule.empty() && driver::Schedule(flags_.schedule).turns_momentum())
    options.optimizer.turn_momentum("--schedule " + flags_.schedule);
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
  const driver::LossSpec loss = driver::read_loss(options.loss, flags_.output);
  const std::vector<passes::MetricSpec> metrics = driver::metrics_of(flags_.metric, loss);
  Model model = Model::load(flags_.model);
  require_output(flags_.output, model, "--out");
  outputs_.protect_model(driver::onnx_file(model)->files);
  if (!flags_.init.empty()) model = with_weights(model, flags_.init);
  const std::vector<data::WantedArray> wanted = driver::wanted_arrays(model, loss, metrics);
  driver::DataRequest request = flags_.data.request;
  request.number_names = driver::table_names_of(flags_.model, model);
  driver::OpenedData data = driver::open_data(request, wanted, &model);
  say_notes(console_, data, wanted);
  take_data(std::move(data), flags_.batch);
  options.graph.input_forms = data_.input_forms;
  options.graph.preprocessing = data_.preprocessing;
  options.graph.number_names = data_.number_names;
  check_last_rows();
  options.graph.shapes.data = driver::types_of(*data_.train);
  options.graph.shapes.data_source = data_.train->source();
  console_.say(concat("compiling the training step of '", flags_.model, "' for batches of ", flags_.batch));
  return driver::make_trainer(model, options);
}

}  // namespace gcomp::tools
