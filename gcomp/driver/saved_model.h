// What a .gcx of gcomp holds beside programs, weights and kernels: names and settings that no program knows. Stored as JSON in
// the artifact's metadata.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/data_position.h"
#include "gcomp/device_options.h"
#include "gcomp/driver/adaptation.h"
#include "gcomp/driver/index_limits.h"
#include "gcomp/driver/original_model.h"
#include "gcomp/input_form.h"
#include "gcomp/optimizer.h"
#include "runtime/artifact.h"
#include "runtime/device.h"

namespace gcomp::driver {

inline constexpr char kForwardProgram[] = "forward";
/// The program that takes the learning rate and gives the loss; of a step without micro-batches all of it.
inline constexpr char kTrainingProgram[] = "train_step";
/// The others of a step with micro-batches (passes/training/accumulate.h).
inline constexpr char kShardProgram[] = "train_shard", kLockStepProgram[] = "train_lock_step", kCountProgram[] = "train_count",
                      kTotalProgram[] = "train_total", kCombineProgram[] = "train_combine_";
/// Those between ranks (passes/training/distribute.h), and what adds up the last node of a rank for each exchange.
inline constexpr char kCountExchangeProgram[] = "train_count_exchange", kExchangeProgram[] = "train_exchange_",
                      kGatherProgram[] = "train_gather_", kBucketTotalProgram[] = "train_total_bucket_";
/// The name of the one that adds up the node of that number, of so many that one process has.
std::string total_program(std::size_t node, std::size_t nodes);
/// Whether a program of this name belongs to a training step.
bool is_step_program(std::string_view name);

inline constexpr char kEvaluationProgram[] = "evaluate";

inline constexpr std::int64_t kMostMicroBatches = 4096;

struct SavedMetric {
  std::string text;
  bool takes_scores = false, of_classes = false;  ///< passes::MetricSpec's
};

/// What the outputs of the program that evaluates are (passes/training/metrics/metric.h).
struct SavedEvaluation {
  std::vector<bool> term_is_sum;
  bool takes_parts = false;  ///< a batch may be filled up
  std::vector<IndexLimit> limits;
  std::vector<SavedMetric> metrics;
};

struct SavedModel {
  std::string model;                 ///< what it was compiled from
  std::string loss;                  ///< "" where there is no training step
  double learning_rate = 0;          ///< of the last run, or as it was compiled: a run may have another
  std::vector<std::string> trained;  ///< states that training changes
  std::vector<std::string> weights;  ///< parameters and running statistics
  std::vector<std::string> outputs;  ///< of the forward program, by the model's names
  std::vector<LabelLimit> labels;    ///< inputs of the step of Role::label
  std::vector<IndexLimit> limits;
  std::string row_dependence;          ///< what keeps the forward program from working on parts of a batch; "" where nothing does
  std::vector<ParameterGroup> groups;  ///< of the training step
  std::optional<Adaptation> lora;      ///< none without adapters
  std::vector<InputForm> input_forms;  ///< of the programs' inputs
  std::string preprocessing;           ///< of rows before they come: a list of transforms in the form of inference
  std::string number_names;            ///< what their numbers stand for (data/number_names.h); "" where nothing has names
  std::int64_t micro_batches = 1;      ///< into how many the training step cuts a batch
  std::string timed = {};              ///< DeviceOptions::timed_choices of the training; "" where nothing was timed
  /// DeviceOptions::winograd, ::precision, ::use_cublaslt, ::use_cudnn and ::portable_bits of the training, which decide its bits.
  bool winograd = false, tf32 = false, no_cublaslt = false, no_cudnn = false, portable_bits = false;
  std::optional<bool> tiles = {};  ///< sums_by_tiles() of the training
  DataPosition position;
  std::optional<SavedEvaluation> evaluation;  ///< none without a training step
  std::optional<OriginalModel> original;      ///< none where it was no ONNX file, and without a training step
};

void store(const SavedModel& saved, runtime::Artifact& artifact);
/// Throws UserError where the artifact was not written by gcomp's compile or Trainer::save(), or says what does not fit its
/// programs and weights.
SavedModel saved_model(const runtime::Artifact& artifact, const std::filesystem::path& path);

/// How many steps the artifact at `path` has been trained, by what it says of itself; 0 where it is none that saved_model() reads.
std::int64_t trained_steps(const std::filesystem::path& path);

/// What of the options decides bits, wherever it is looked at, becomes the model's.
void keep_choices(SavedModel& saved, const DeviceOptions& options);
/// With the timed choices of the model where none are given, and with what else its training computed by: for the device that it
/// runs on.
DeviceOptions with_choices(DeviceOptions options, const SavedModel& saved);
/// Notes where the device computes in other ways than the model's training did.
std::vector<std::string> note_choices(const SavedModel& saved, const DeviceOptions& options, const runtime::Device& device,
                                      const std::filesystem::path& path);

/// Throws UserError (exit 2) where the artifact is compiled for another kind of device than the one that is asked for.
void require_device(runtime::DeviceRequest request, const runtime::Target& target, const std::filesystem::path& path);

/// Null where the artifact has no program of this name.
const runtime::Program* find_program(const runtime::Artifact& artifact, std::string_view name);
/// The machine code that came with a program, or nothing.
std::span<const std::byte> kernel_binary(const runtime::Artifact& artifact, const runtime::Program& program);
/// Under which name kernel_binary() looks: "cpu/train_step.so", "cubins/sm_90/train_step.cubins".
std::string kernel_binary_name(const runtime::Program& program);

}  // namespace gcomp::driver
