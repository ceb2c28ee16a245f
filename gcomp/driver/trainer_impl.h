// What a gcomp::Trainer holds.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/driver/checkpoint_manifest.h"
#include "gcomp/driver/evaluator.h"
#include "gcomp/driver/forward.h"
#include "gcomp/driver/saved_model.h"
#include "gcomp/driver/step_programs.h"
#include "gcomp/driver/training.h"
#include "gcomp/driver/whole_states.h"
#include "gcomp/trainer.h"
#include "runtime/artifact.h"
#include "runtime/device.h"

namespace gcomp {

struct Trainer::Impl {
  std::optional<Model> source;  // none after load()
  std::vector<driver::LossOutput> other_outputs;
  driver::TrainOptions options;
  driver::LossSpec loss;
  frontend::ImportedModel model;
  driver::SavedModel saved;
  std::vector<std::byte> whole_model;                       // what an artifact brought and its successor takes
  Path artifact_path;                                       // after load()
  std::optional<frontend::OnnxFile> original;               // after prepare_export()
  std::string written_beside;                               // by the last save(): see driver::written_beside()
  std::optional<driver::CheckpointModel> checkpoint_model;  // once a checkpoint was written or restored
  std::string device_reason;
  std::unique_ptr<runtime::Device> device;
  std::shared_ptr<runtime::StateMemory> memory;
  driver::StepPrograms step;
  driver::WholeStates states;  // of `memory`
  /// Of a checkpoint, on the rank that read it, until the others have their shares.
  std::map<std::string, Tensor> restored;
  std::unique_ptr<driver::Forward> forward, averaged;  // averaged: of the averages of the parameters
  std::unique_ptr<driver::Evaluator> evaluator, averaged_evaluator;
  std::unique_ptr<runtime::Executable> gradient;
  Optional<LossScaleStatus> loss_scale;
  Optional<bool> skipped;
  Optional<double> gradient_norm;
  Weights weights = Weights::trained;  // of evaluations and predictions
  std::int64_t steps = 0;
  std::optional<double> momentum;  // of the next step, where a schedule turns it
  int pending = 0;                 // steps queued, their losses not taken
  int fault_age = 0;               // runs between the one that threw and the last
  bool in_fit = false;             // a fit() that has not returned has its batches in memory of `step`

  Impl(const Model& model, const driver::TrainOptions& options);
  /// From a .gcx file.
  Impl(const Path& path, const DeviceOptions& options, DeviceRequest device, const ArtifactTrust& trust);

  void open_device(const runtime::DeviceChoice& choice, const DeviceOptions& device_options);
  void adopt_step(std::vector<driver::StepProgram> programs, std::vector<passes::ShardedState> sharded = {});
  /// Makes programs that read parameters or averages whole see them as they are now, where ranks hold shares of them. All ranks
  /// call what calls this at the same time.
  void refresh_copies();
  runtime::Program forward_program(std::int64_t batch);
  driver::Forward& forward_pass();
  /// Of `weights`.
  driver::Forward& used_forward();
  driver::Evaluator& evaluation();
  runtime::Executable* saved_evaluation();
  /// Of `weights`.
  driver::Evaluator& used_evaluation();
  /// Of an array of the data, for messages and checks; null where it has no class numbers.
  const driver::LabelLimit* label_limit(std::string_view array) const;
  void fill(runtime::Executable& executable, const Batch& batch);
  std::optional<driver::IndexFault> find_index_fault(runtime::Executable& executable, int age) const;
  /// Does `work`; where an index of the run `age` runs before the last was out of range, the error names input, row and value.
  void naming_index_faults(runtime::Executable& executable, int age, const std::function<void()>& work) const;
  runtime::Artifact artifact();
};

}  // namespace gcomp
