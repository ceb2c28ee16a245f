// One run of gcomp train, from its flags to the trained model: training_setup.cpp makes what gcomp::fit() takes, training_run.cpp
// calls it and says what it does, training_results.cpp writes the model.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/ranks.h"
#include "gcomp/driver/schedule.h"
#include "gcomp/fit.h"
#include "gcomp/run_directory.h"
#include "gcomp/trainer.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/data_flags.h"
#include "tools/gcomp/fit_flags.h"
#include "tools/gcomp/interrupt.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/metrics_log.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/progress.h"
#include "tools/gcomp/ranks.h"
#include "tools/gcomp/rescue.h"
#include "tools/gcomp/step_flags.h"

namespace gcomp::tools {

/// Exit code of a run that --resume takes up (EX_TEMPFAIL of sysexits.h).
inline constexpr int kExitToResume = 75;

struct TrainFlags {
  std::string model, loss, output, metrics, out, out_ema, schedule, init;
  std::vector<std::string> metric;
  std::int64_t batch = 0, epochs = 0, steps = 0, warmup_steps = 0;
  std::uint64_t seed = 0;
  bool seed_given = false, micro_batches_given = false, tune_given = false, no_shuffle = false, embed_model = false,
       training = false, partial = false, export_preprocess = false;
  DataFlags data;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  StepFlags step;
  FitFlags run;
  RankFlags ranks;
  std::vector<std::string> words;           ///< the command line as it was given
  std::string resume_command, config_json;  ///< how the run would go on, and what config.json holds
  LoraFlags lora;
  DeviceOptions device;
  TrustOptions trust;
};

/// The members are what the run needs, in the order in which they are made.
class TrainingRun {
 public:
  /// Checks the flags, reads the data, makes the trainer. Once a signal is noted, throws an Error within moments.
  /// Of several ranks the first says, keeps and writes what there is; `ranks` has no communicator for one process.
  TrainingRun(const TrainFlags& flags, const Console& console, const Interrupt& interrupt, const OpenedRanks& ranks);
  /// All steps, or those up to a signal. Throws as the constructor up to the first.
  void train();
  /// Whether the first step may have run.
  bool started() const { return !setting_up_; }
  /// Writes the model and says what became of it. Throws Unfinished, on all ranks, after a signal, and where something could not be
  /// written.
  void finish();
  /// A line of the run directory's log, where there is one.
  void log(const std::string& line) {
    if (directory_) directory_->log(line);
  }

 private:
  Trainer make_trainer();
  void initialize_weights();
  Trainer load_trainer();
  Trainer compile_trainer();
  void prepare_outputs();
  void take_data(driver::OpenedData data, std::int64_t batch);
  void keep_names() const;
  void check_schedule() const;
  void check_last_rows() const;
  runtime::DeviceOptions device_options();
  FitOptions fit_options();
  /// Where the trained model goes, for messages.
  std::string out() const;
  void throw_if_interrupted() const;
  /// That asked the run to end.
  int signal() const { return signal_asked(interrupt_.signal()); }

  void begin(const FitPlan& plan);
  void report(const FitPlan& plan);
  void report_schedule(const FitPlan& plan) const;
  void report_plan(const FitPlan& plan);
  void report_step(const FitStep& step);
  void report_evaluation(const FitEvaluation& evaluation);
  void report_failure(const FitFailure& left);
  std::string kept_text(const FitFailure& left);
  std::string left_text() const;

  void say_what_happened() const;
  void report_data_wait() const;
  void report_exchanges() const;
  nlohmann::json results(const std::string& out, const std::string& digest) const;
  std::string skipped_text() const;
  void print_results(const SavedModelFile& saved, const std::string& digest) const;
  void write_results();

  const TrainFlags& flags_;
  const Console& console_;
  const Interrupt& interrupt_;
  const OpenedRanks& opened_;
  driver::Ranks ranks_;
  Outputs outputs_;
  std::optional<RunDirectory> directory_;
  std::optional<ConsoleCopy> copy_;  // to its log
  std::unique_ptr<MetricsLog> metrics_;
  driver::OpenedData data_;
  bool setting_up_ = true;               // a signal then ends the run at once
  CompileProgress compiling_{console_};  // outlives the trainer, which compiles for evaluation too
  std::optional<Trainer> trainer_;
  FitPlan plan_;
  std::optional<Progress> progress_;
  FitResult result_;
  bool is_kept_ = false;  // what was trained, though an error ended the training
};

}  // namespace gcomp::tools
