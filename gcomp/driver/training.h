// A gcomp::Trainer for those who know more of a model than its user says, or look inside it.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "gcomp/driver/compile.h"
#include "gcomp/driver/index_limits.h"
#include "gcomp/driver/loss_target.h"
#include "gcomp/driver/step_programs.h"
#include "gcomp/trainer.h"
#include "runtime/executable.h"

namespace gcomp::driver {

/// gcomp::TrainOptions with the driver's own GraphOptions and CompileHooks.
struct TrainOptions {
  std::string loss = "cross_entropy";  ///< passes/training/losses/loss.h
  std::string output;                  ///< what calls without arguments look at; "" for the first output of floats
  std::vector<std::string> metrics;    ///< passes/training/metrics/metric.h; without any, accuracy where the loss decides
  Optimizer optimizer;
  double learning_rate = 1e-3;
  std::int64_t batch = 0;   ///< rows of one step; 0 where GraphOptions::shapes binds everything
  GraphOptions graph = {};  ///< floats compute as f32 where no precision is given
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};  ///< threads, compiler, cache, log sink
  CompileHooks hooks = {};
  KeepModel keep_model = KeepModel::by_reference;            ///< in a .gcx, for the export of what is trained from it
  ExportForm export_form = ExportForm::inference;            ///< of what save() writes as .onnx
  bool export_preprocessing = false;                         ///< the forms of inputs become nodes of that file
  std::uintmax_t largest_onnx = frontend::kLargestOnnxFile;  ///< bytes of that file, beyond which weights lie beside it
};

/// What a Trainer makes of its user's options.
TrainOptions train_options(const gcomp::TrainOptions& options);

/// Trainer(model, options).
Trainer make_trainer(const Model& model, const TrainOptions& options);

/// What import decided; after load() empty, but for what prepare_export() finds. The graph in it is empty.
const frontend::ImportedModel& imported_model(const Trainer& trainer);
/// Outputs beside loss_output() whose labels would have the same type; empty after load().
const std::vector<LossOutput>& other_outputs(const Trainer& trainer);
/// Its adapters; none where it has none.
const std::optional<Adaptation>& adaptation_of(const Trainer& trainer);
/// Which class numbers arrays of the data may hold.
const std::vector<LabelLimit>& label_limits(const Trainer& trainer);
/// The files that export reads: the model's and those of its external data; after load() and without prepare_export() none.
std::vector<frontend::FileStamp> model_files(const Trainer& trainer);
/// Where the last save() put weights that its .onnx had no room for; "" where it had, or was no .onnx.
const std::string& written_beside(const Trainer& trainer);
/// Why a .gcx of this trainer could not be exported later: its model has other weights than its file, and fits into no artifact. ""
/// where it could.
std::string why_not_exported_later(const Trainer& trainer);
/// Whether what is trained can be written as .onnx.
bool comes_from_onnx(const Trainer& trainer);
/// After step(), start() or take_loss() threw: the first index out of range in the inputs that the step saw.
std::optional<IndexFault> find_index_fault(Trainer& trainer);
/// Arrays that evaluate() reads, after load(); without a program that evaluates, throws UserError.
std::vector<std::string> evaluation_arrays(Trainer& trainer);
/// While alive, the first of several ranks can save() and read parameters and averages by itself, whoever holds them. All ranks
/// make one at the same time.
class CollectedStates {
 public:
  explicit CollectedStates(Trainer& trainer);
  ~CollectedStates();
  CollectedStates(const CollectedStates&) = delete;
  CollectedStates& operator=(const CollectedStates&) = delete;

 private:
  Trainer& trainer_;
};
/// Compiles now what save() to a .gcx writes beside the training step.
void prepare_artifact(Trainer& trainer);
/// The training step; with micro-batches the part that is done once a step.
runtime::Executable& step_of(Trainer& trainer);
/// All that a step runs.
const StepPrograms& step_programs_of(Trainer& trainer);

}  // namespace gcomp::driver
