// One run of gcomp train, from its flags to the trained model. training_setup.cpp makes it, training_run.cpp runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gcomp/driver/schedule.h"
#include "gcomp/trainer.h"
#include "runtime/batch_plan.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/interrupt.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/metrics_log.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/step_flags.h"
#include "tools/gcomp/training_data.h"

namespace gcomp::tools {

struct TrainFlags {
  std::string model, data, eval_data, loss, output, metrics, out, out_ema, schedule;
  std::vector<std::string> metric;
  std::int64_t batch = 0, epochs = 0, steps = 0, warmup_steps = 0;
  std::uint64_t seed = 0;
  bool seed_given = false, no_shuffle = false, embed_model = false, training = false;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  StepFlags step;
  LoraFlags lora;
  DeviceOptions device;
  TrustOptions trust;
};

/// The members are what the loop needs, in the order in which they are made.
class TrainingRun {
 public:
  /// Everything up to the first step. Once a signal is noted, throws an Error within moments.
  TrainingRun(const TrainFlags& flags, const Console& console, const Interrupt& interrupt);
  void report();
  /// All steps, or those up to a signal.
  void train();
  /// Writes the model and says what became of it. Throws Unfinished after a signal, and where something could not be written.
  void finish();

 private:
  void report_step();
  Trainer make_trainer();
  void bind_schedule();
  double rate_of(std::int64_t step) const { return schedule_ ? schedule_->rate(step) : trainer_->learning_rate(); }
  Trainer load_trainer();
  Trainer compile_trainer();
  void open_all(std::int64_t batch);
  runtime::DeviceOptions device_options();
  void throw_if_interrupted() const;

  void start(std::int64_t step);
  void take_loss(std::int64_t step);
  void evaluate(std::int64_t epoch);
  void write_metrics(std::int64_t step);
  void check_scale(std::int64_t step, const LossScaleStatus& scale);
  std::string where_loss_went(std::int64_t step, double loss, std::span<const std::int64_t> rows) const;
  nlohmann::json results(const std::string& out, const std::string& digest) const;
  std::string skipped_text() const;
  void print_results(const std::string& out, const std::string& digest) const;

  const TrainFlags& flags_;
  const Console& console_;
  const Interrupt& interrupt_;
  Outputs outputs_;
  std::unique_ptr<MetricsLog> metrics_;
  std::vector<std::string> names_;
  std::optional<runtime::Dataset> data_, eval_data_;
  bool setting_up_ = true;               // a signal then ends the run at once
  CompileProgress compiling_{console_};  // outlives the trainer, which compiles for evaluation too
  std::optional<Trainer> trainer_;
  DataPosition position_;  // of the first step
  std::optional<runtime::BatchPlan> plan_;
  std::optional<driver::Schedule> schedule_;  // none: the same rate throughout
  double base_rate_ = 0;
  std::optional<BatchFeeder> feeder_;
  std::int64_t steps_ = 0, taken_ = 0;  // wanted and done by this run
  double loss_ = 0;
  std::int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  std::vector<double> group_rates_;       // of the step whose metrics are written
  std::optional<Evaluation> evaluation_;  // of the weights as they are, or none
  double seconds_ = 0;
};

}  // namespace gcomp::tools
