#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/order/mixture.h"
#include "data/order/sampling.h"
#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/fit/loop.h"
#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/fit/run_record.h"
#include "gcomp/driver/fit/run_settings.h"
#include "gcomp/driver/trainer_impl.h"
#include "gcomp/version.h"
#include "ir/base/error.h"
#include "runtime/files/sha256.h"
#include "runtime/instruction_set.h"

namespace gcomp::driver {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw UserError(message, ExitCode::usage); }

/// What evaluations tell beside the loss: numbers and tables, by their texts.
std::vector<std::string> metrics_of_evaluations(const Trainer& trainer) {
  std::vector<std::string> names;
  if (!trainer.impl().saved.evaluation) return names;
  for (const SavedMetric& metric : trainer.impl().saved.evaluation->metrics) names.push_back(metric.text);
  return names;
}

/// Of some rows from all over the data. One that cannot be read counts as none: whoever needs it says so.
std::string digest_of_rows(const Dataset& data) {
  constexpr std::int64_t kLookedAt = 16;
  runtime::Sha256 digest;
  const std::int64_t count = std::min(kLookedAt, data.rows());
  const std::vector<NamedType> arrays = data.arrays();
  for (std::int64_t i = 0; i < count; ++i)
    for (std::size_t array = 0; array < arrays.size(); ++array) {
      std::vector<std::byte> row(static_cast<std::size_t>(arrays[array].second.bytes()));
      try {
        data.fetch(array, count > 1 ? i * (data.rows() - 1) / (count - 1) : 0, row);
      } catch (const Error&) { continue; }
      digest.add(row);
    }
  return digest.digest();
}

}  // namespace

FitLoop::FitLoop(Trainer& trainer, const Dataset& data, const FitOptions& options, const FitCallbacks& callbacks)
    : trainer_(trainer),
      data_(data),
      options_(options),
      callbacks_(callbacks),
      run_(options.run ? &options.run->impl() : nullptr),
      ranks_(ranks_of(trainer)),
      fed_(fed_arrays(trainer)) {
  check_options();
  if (run_) protect_from_run();
  check_data(data, fed_);
  if (options.eval) {
    share_choices(*trainer.impl().device, trainer.impl().options.device_options.communicator, [&] { trainer.impl().evaluation(); });
    trainer.prepare_evaluation();
  }
  if (options.eval)
    check_data(*options.eval, fed_arrays(trainer.impl().evaluation().executable().program(), label_limits(trainer)));
  place();
  bind_schedule();
  compile_remainder();
  decisions_ = Decisions::of(options, schedule_, options.eval ? metrics_of_evaluations(trainer) : std::vector<std::string>(),
                             ranks_.is_first());
  if (ranks_.several()) facts_ = facts();
  if (options.run && options.run->goes_on()) resume();
}

void FitLoop::check_options() const {
  const FitOptions& o = options_;
  if ((o.epochs > 0) == (o.steps > 0) || o.epochs < 0 || o.steps < 0) refuse("give either --epochs N or --steps N, at least 1");
  if (o.warmup_steps < 0) refuse("--warmup-steps: wanted 0 or more");
  if (o.eval_every < 0) refuse("--eval-every: wanted 1 or more");
  if (o.eval_every > 0 && !o.eval) refuse(concat("--eval-every ", o.eval_every, ": there is no --eval-data to evaluate"));
  if (o.workers && (*o.workers < 0 || *o.workers > kMostWorkers))
    refuse(concat("--workers ", *o.workers, ": wanted 0 to ", kMostWorkers));
  if (o.prefetch < 1 || o.prefetch > kMostPrefetched) refuse(concat("--prefetch ", o.prefetch, ": wanted 1 to ", kMostPrefetched));
  if (!o.sample.empty() && !o.mix.empty()) refuse("--sample and --mix: both choose the rows of an epoch; give one of them");
  if (!o.sample.empty() && !o.shuffle) refuse("--sample draws rows by chance, and --no-shuffle takes them as they lie; give one");
  if (o.log_every < 1) refuse("--log-every: wanted 1 or more");
  if (o.checkpoint_every < 0 || o.checkpoint_every_seconds < 0) refuse("--checkpoint-every: wanted 1 or more steps, or a time");
  if (o.keep < 0) refuse("--keep: wanted 0 or more");
  if (!(o.max_seconds >= 0)) refuse("--max-time: wanted a time above 0");
  if (!(o.skip_spikes >= 0)) refuse("--skip-spikes: wanted a number above 0");
  if (o.skip_spikes > 0 && !takes_limits(trainer_))
    refuse(concat("--skip-spikes ", o.skip_spikes, ": the training step was compiled without it"));
  if (trainer_.pending() > 0) refuse(concat("fit: the losses of ", trainer_.pending(), " steps are to be taken first"));
}

/// What is read is not in the way of what the run writes and removes.
void FitLoop::protect_from_run() const {
  const std::vector<frontend::FileStamp> files = model_files(trainer_);
  for (const frontend::FileStamp& file : files)
    driver::protect_from_run(run_->path, &file == &files.front() ? "model" : "model's external data", file.path);
  driver::protect_from_run(run_->path, "data", data_.source());
  if (options_.eval) driver::protect_from_run(run_->path, "evaluation data", options_.eval->source());
}

/// What an earlier gcomp saved was shuffled otherwise.
void FitLoop::settle_order() {
  if (position_.order != kRowOrder && position_.shuffled && position_.steps > 0)
    callbacks_.note(
        "the training began with an earlier gcomp, which shuffled rows otherwise: of the epoch that it is in, some rows come twice "
        "and others not");
  position_.order = kRowOrder;
}

/// Where in the data the first step is.
void FitLoop::place() {
  const DataPosition before = trainer_.data_position();
  position_ = before;
  if (before.steps == 0) {
    position_.shuffled = options_.shuffle;
    if (options_.seed) position_.seed = *options_.seed;
  } else {
    if (options_.seed && *options_.seed != before.seed)
      refuse(concat("--seed ", *options_.seed, ": the training did ", before.steps, " steps with seed ", before.seed,
                    " and goes on with it; leave --seed out"));
    if (!options_.shuffle && before.shuffled)
      refuse(concat("--no-shuffle: the training did ", before.steps, " steps on shuffled rows and goes on so; leave it out"));
  }
  position_.rows = data_.rows();
  if (before.steps > 0 && before.rows != data_.rows()) {
    position_.steps = 0;
    callbacks_.note(concat("the model was trained on ", before.rows, " rows, '", data_.source(), "' has ", data_.rows(),
                           ": its rows are gone through from the start"));
  }
  settle_order();
  rows_.emplace(data_.rows(), trainer_.batch(), position_.seed,
                position_.shuffled ? runtime::RowOrder::shuffled : runtime::RowOrder::sequential,
                options_.drop_last ? runtime::LastRows::dropped : runtime::LastRows::kept);
  if (!options_.sample.empty()) rows_->draw_by(data::Sampling(options_.sample).draw(data_, position_.seed));
  if (!options_.mix.empty())
    rows_->draw_by(data::draw_mixed(data_.parts(), options_.mix, position_.seed,
                                    position_.shuffled ? runtime::RowOrder::shuffled : runtime::RowOrder::sequential));
  const StepSettings& step = trainer_.impl().options.graph.step;
  const bool in_turns = ranks_.several() && passes::takes_turns(step.sharding);
  own_rows_.emplace(rows_->share(ranks_.rank(), ranks_.size(), in_turns ? step.micro_batches / ranks_.size() : 1));
  begin_ = first_ = position_.steps;
  end_ = end_of({options_.steps, options_.epochs});
}

std::int64_t FitLoop::end_of(RunLength length) const {
  return begin_ + (length.steps > 0 ? length.steps : length.epochs * rows_->steps_per_epoch());
}

/// The run may end elsewhere than it was to, where the steps that are done would have been the same.
void FitLoop::check_length(RunLength before, std::int64_t done, const std::string& where) const {
  const std::int64_t end = end_of(before);
  if (end_ < done) refuse(concat(where, done - begin_, " steps are done, and the run is to end after ", end_ - begin_));
  if (schedule_ && !agrees(*schedule_, {base_rate_, end, options_.warmup_steps}, begin_, done))
    refuse(concat(where, "the run was to end after ", end - begin_, " steps and now after ", end_ - begin_, ", and --schedule ",
                  schedule_->text(), " takes its length from that: the rates of the steps that are done would have been others"));
  if (end != end_) callbacks_.note(concat("the run was to end after ", end - begin_, " steps, and now ends after ", end_ - begin_));
}

/// Steps count from the start of the data, as the schedule's do, so that a run that goes on goes on in its schedule too.
void FitLoop::bind_schedule() {
  base_rate_ = trainer_.learning_rate();
  if (!options_.schedule.empty() || options_.warmup_steps > 0)
    schedule_.emplace(options_.schedule.empty() ? "constant" : options_.schedule);
  const bool turns = schedule_ && schedule_->turns_momentum();
  if (trainer_.takes_momentum() && !turns)
    refuse("the training step was compiled for a schedule that turns the momentum; give it, such as --schedule one_cycle");
  if (!trainer_.takes_momentum() && turns)
    refuse(concat("--schedule ", options_.schedule,
                  ": the training step was compiled for a momentum that stays; cycle_momentum=false leaves it"));
  if (schedule_) schedule_->bind({base_rate_, end_, options_.warmup_steps});
}

void FitLoop::compile_remainder() {
  if (rows_->last_rows() > 0) last_rows_.emplace(trainer_, rows_->last_rows());
}

void FitLoop::adopt(const RunState& state) {
  set_schedule_state(schedule_, state.schedule);
  set_loop_state(decisions_, state.loop);
  position_ = state.position;
  settle_order();
  first_ = position_.steps;
}

/// From the newest checkpoint that is whole.
void FitLoop::resume() {
  if (run_->config.empty()) run_->config = config_of(options_);
  const std::optional<FoundCheckpoint> found = find_latest(run_->checkpoints());
  if (!found) {
    const std::string kept = run_->keep_earlier();
    return callbacks_.note(concat("--resume: '", run_->path, "' holds no checkpoint: the run starts anew",
                                  kept.empty() ? "" : concat("; what was there goes to '", kept, "'")));
  }
  const RunState& saved = found->manifest.run;
  const std::string where = concat("--resume: '", found->path.string(), "': ");
  std::vector<ConfigDifference> differences = setting_differences(saved.config, run_->config);
  const std::string device_before = recorded_device(*run_);
  take_device(differences, device_before, trainer_.device());
  const std::optional<RunLength> before = take_length(differences, {options_.steps, options_.epochs});
  if (!differences.empty())
    refuse(concat(where, to_string(differences), "; a run goes on as it began, or --overwrite starts another"));
  if (saved.position.rows != data_.rows())
    throw UserError(concat(where, "its data have ", saved.position.rows, " rows, '", data_.source(), "' has ", data_.rows()));
  require_recorded_data(*run_, data_, options_.eval, where);
  if (saved.position.steps - saved.step != begin_)
    throw UserError(
        concat(where, "its run began after step ", saved.position.steps - saved.step, " of the data, this one after ", begin_));
  if (before) check_length(*before, saved.position.steps, where);
  if (const std::string why = runtime::difference(saved.timed, trainer_.impl().device->timed_choices()); !why.empty())
    callbacks_.note(concat(where, "its timed choices (--tune) are not taken: ", why, "; bits may differ from here on"));
  if (const bool tiles = has_tiles(trainer_.device());
      tiles != has_tiles(device_before) && multiply(trainer_.impl().step, DType::bf16))
    callbacks_.note(concat(where, "its ", other_tiles_text(tiles)));
  adopt(restore(trainer_, *found));
  went_on_ = concat("resumed from '", found->path.string(), "'");
  passed_over_ = found->passed_over;
}

namespace {

/// The words behind a step that was compiled here, so that ranks which differ hear of them and not only of a digest.
void add_words(const Trainer::Impl& trainer, nlohmann::json& facts) {
  if (!trainer.source) return;
  const StepSettings& step = trainer.options.graph.step;
  facts["loss"] = trainer.options.loss;
  facts["optimizer"] = trainer.options.optimizer.text();
  facts["precision"] = name_of(trainer.options.graph.precision.value_or(DType::f32));
  facts["micro-batches"] = step.micro_batches;
  facts["loss chunks"] = step.loss_chunks;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) facts[name] = *value;
  };
  add("clip norm", step.clip_norm);
  add("clip value", step.clip_value);
  add("decay of the average", step.average);
}

}  // namespace

/// What decides the training beside the data's values, as a JSON object.
std::string FitLoop::facts() const {
  const Trainer::Impl& trainer = trainer_.impl();
  nlohmann::json facts = nlohmann::json::parse(settings_of(config_of(options_)));
  add_words(trainer, facts);
  facts["learning rate"] = base_rate_;
  facts["zero"] = passes::stage_of(trainer.options.graph.step.sharding);
  facts["exchanges"] = trainer.step.overlaps() ? "beside what is computed" : "by themselves";  // ways that do not meet
  facts["version of gcomp"] = version();
  // Ranks may differ in them where bits do not.
  const runtime::DeviceOptions& device = trainer.options.device_options;
  const runtime::InstructionSet instructions =
      runtime::usable_instruction_set(device.instruction_set, runtime::widest_instruction_set());
  facts["vector instructions"] = instructions == runtime::InstructionSet::baseline ? "baseline" : "AVX2 or wider, of the same bits";
  if (has_tiles(trainer_.device()) && multiply(trainer.step, DType::bf16)) facts["products of bf16"] = "by AMX's tiles";
  if (device.winograd) facts["3x3 convolutions"] = "Winograd's F(2x2, 3x3)";
  facts["training step (SHA-256)"] = digest_of(trainer.step);
  facts["rows of the data"] = data_.rows();
  for (const auto& [name, type] : data_.arrays()) facts["data array " + name] = to_string(type);
  facts["values of some rows (SHA-256)"] = digest_of_rows(data_);
  facts["weights at the start (SHA-256)"] = trainer_.weights_digest();
  facts["order of rows"] = position_.shuffled ? concat("shuffled with seed ", position_.seed) : "as they lie";
  facts["steps done with these data"] = first_;
  return facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void FitLoop::meet() {
  is_kept_ = run_ != nullptr;
  if (!ranks_.several()) return;
  is_kept_ = !ranks_.from_first(is_kept_ ? "kept" : "").empty();
  ranks_.require_same(facts_);
  Manifest manifest;  // of which only the run counts
  if (ranks_.is_first())
    manifest.run = {
        .step = first_ - begin_, .position = position_, .schedule = schedule_state(schedule_), .loop = loop_state(decisions_)};
  manifest = parse_manifest(ranks_.from_first(manifest_text(manifest)));
  if (manifest.run.step > 0 && !ranks_.is_first()) adopt(manifest.run);
  if (manifest.run.step > 0) share_states(ranks_, trainer_);
}

FitPlan FitLoop::plan() const {
  return {.position = position_,
          .steps = end_ - begin_,
          .done = first_ - begin_,
          .batch = rows_->batch(),
          .steps_per_epoch = rows_->steps_per_epoch(),
          .dropped_rows = rows_->dropped_rows(),
          .schedule = schedule_ ? schedule_->text() : "",
          .learning_rate = base_rate_,
          .went_on = went_on_,
          .passed_over = passed_over_,
          .rate = [schedule = schedule_, base = base_rate_](std::int64_t step) { return schedule ? schedule->rate(step) : base; }};
}

}  // namespace gcomp::driver
