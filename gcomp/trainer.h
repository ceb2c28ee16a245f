// Training a model from C++:
//
//   gcomp::Trainer trainer = gcomp::compile(gcomp::Model::load("m.onnx"), {.loss = "cross_entropy", .batch = 64});
//   for (...) loss = trainer.train_step({{"x", {pixels, {64, 784}}}, {"label", {digits, {64}}}});
//   trainer.save("trained.onnx");
//
// Nothing here prints, exits, or keeps state outside its objects. A Trainer belongs to one thread at a time; different Trainers
// are independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/artifact_trust.h"
#include "gcomp/compile_options.h"
#include "gcomp/data_position.h"
#include "gcomp/device_options.h"
#include "gcomp/evaluation.h"
#include "gcomp/model.h"
#include "gcomp/optimizer.h"
#include "gcomp/owned.h"
#include "gcomp/saved_form.h"
#include "gcomp/tensor_view.h"

namespace gcomp {

struct TrainOptions {
  /// Over outputs and arrays: "0.7*cross_entropy(logits, label) + 0.3*mse(aux, target)", "output:NAME"; docs/training.md has all.
  std::string loss = "cross_entropy";
  std::string output = {};                ///< what a loss or metric without arguments looks at; "" for the first output of floats
  std::vector<std::string> metrics = {};  ///< of evaluate(): "top_k(k=5)"; without any, accuracy where the loss decides
  Optimizer optimizer = {};
  Optional<double> learning_rate = {};   ///< without it, the optimizer's
  std::vector<std::string> groups = {};  ///< "kind:bias, *.norm: weight_decay=0"; the first that has a parameter decides
  Optional<double> clip_norm = {};       ///< the most that the norm of all gradients together may be, above 0
  Optional<double> clip_value = {};      ///< the most that an element of a gradient may be, either way; not both
  Optional<double> ema = {};             ///< decay of an exponential moving average of the parameters, from 0 to below 1
  bool skip_spikes = false;              ///< FitOptions::skip_spikes may pass over steps; includes skip_non_finite
  bool skip_non_finite = false;          ///< a step whose loss or gradients are not finite changes nothing
  std::int64_t micro_batches = 1;        ///< shards of rows whose gradients add up to the batch's; they divide `batch`
  /// What each of several ranks holds a share of (docs/distributed.md): 0 nothing, 1 the optimizer's states, 2 and gradients, 3 and
  /// the parameters. From 2 on rank r of N has the micro-batches r, N + r, 2 N + r, ...
  int zero = 1;
  /// Ranks exchange gradients and parameters in buckets of about so many bytes: small ones begin early, large ones are few.
  std::int64_t bucket_bytes = std::int64_t{32} << 20;
  /// Bytes that a step may take, parameters and optimizer states among them: activations are computed again in the backward pass,
  /// as few as that needs; 0 for as few bytes as can be. Losses and weights keep their bits. Without it nothing is.
  Optional<std::int64_t> most_memory = {};
  /// Parts of rows by which the last product and the loss are computed, one after the other, so that no more than a part of the
  /// logits is in memory; 0 for a number that suits their shape. Sums over rows, the last weight's gradient among them, are added
  /// up part by part.
  std::int64_t loss_chunks = 1;
  bool sync_batchnorm = false;         ///< batch normalisation by the statistics of the whole batch, not of a micro-batch
  std::vector<std::string> lora = {};  ///< globs: these weights get low-rank adapters, which alone train (gcomp/lora.h)
  std::int64_t lora_rank = 8;
  double lora_alpha = 16;
  Path lora_adapter = {};  ///< PEFT's file to go on from, instead of the three before
  /// Types of arrays that the loss reads, where they are other than the loss takes by itself: {"label", {DType::f32, {64, 10}}} for
  /// probabilities in the place of class numbers, integers for a loss of floats. Their first dimension is the batch's.
  std::vector<NamedType> arrays = {};
  std::int64_t batch = 0;   ///< rows of one step; 0 where GraphOptions::dims and shapes bind everything
  GraphOptions graph = {};  ///< floats compute as f32 where no precision is given
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};  ///< threads, compiler, cache, log sink
  CompileHooks hooks = {};
  KeepModel keep_model = KeepModel::by_reference;  ///< in a .gcx, for the export of what is trained from it
  ExportForm export_form = ExportForm::inference;  ///< of what save() writes as .onnx
  bool export_preprocessing = false;  ///< GraphOptions::input_forms become nodes of that file, which is fed as the program
};

/// The parameters as they are, or their averages (TrainOptions::ema); running statistics are the same.
enum class Weights : std::uint8_t { trained, averaged };

/// Loss scaling in f16 after one step.
struct LossScaleStatus {
  double scale = 0;      ///< of the next step
  bool skipped = false;  ///< a gradient was not finite: the step changed nothing but the scale
  bool dynamic = false;
};

class Trainer {
 public:
  Trainer(const Model& model, const TrainOptions& options);
  /// From a .gcx file that save() wrote; needs no compiler. Throws UserError where it holds no training step, or (exit 2)
  /// is compiled for another device than `device`.
  static Trainer load(const Path& path, const DeviceOptions& options = {}, DeviceRequest device = DeviceRequest::automatic,
                      const ArtifactTrust& trust = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Steps.

  /// One step on arrays of whole batches; gives the loss before the step. Throws UserError for a missing array, another shape or
  /// dtype (integers fit any integer type, floats any float), a label or index out of range. The loss may be NaN.
  double train_step(const Batch& batch);
  /// The same in two parts, without a copy and without allocation: write every input's memory, then step(). Labels are not checked.
  /// Ask for the memory anew before each step; the index is that of input_names().
  std::span<std::byte> input(std::string_view name);
  std::span<std::byte> input(std::size_t index);
  const TensorType& input_type(std::string_view name) const;
  double step();
  /// step() in two halves, so that a GPU never waits for the host: start() queues a step on what the inputs hold and returns,
  /// take_loss() waits for the oldest step whose loss was not taken. On the CPU start() computes the step.
  void start();
  double take_loss();
  /// Of the step whose loss was taken last; none but in f16.
  Optional<LossScaleStatus> loss_scale() const;
  /// Whether that step changed nothing, since its loss or gradients were not finite; none where no step is skipped.
  Optional<bool> skipped() const;
  /// Of all its gradients together, before they were clipped; none without clip_norm and skip_non_finite.
  Optional<double> gradient_norm() const;
  /// Steps whose loss was not taken, and how many there may be: 1 on the CPU, 2 on a GPU.
  int pending() const;
  int most_pending() const;
  /// Names of the model's inputs, then of the other arrays that the loss reads.
  std::vector<std::string> input_names() const;
  /// Rows of a step. With several ranks (DeviceOptions::communicator) train_step() and input() are given this rank's part, which is
  /// one of as many equal ones, in the order of the ranks; with TrainOptions::zero of 2 and more, those of its micro-batches.
  std::int64_t batch() const;
  /// The number of classes where labels are class numbers.
  Optional<std::int64_t> classes() const;

  double learning_rate() const;
  void set_learning_rate(double rate);
  /// The groups of parameters; none without TrainOptions::groups.
  const std::vector<ParameterGroup>& groups() const;
  /// Whether the steps were compiled for a momentum (or first beta) that a schedule turns; each start() then takes the last that
  /// was set, and throws UserError where none was.
  bool takes_momentum() const;
  /// Throws UserError where the steps take none.
  void set_momentum(double momentum);
  std::int64_t steps() const;  ///< done so far, by this object
  /// Where in its data the training stands, as the artifact said or the caller last. Nothing here moves it: only the caller knows
  /// which rows he takes. An artifact keeps it.
  const DataPosition& data_position() const;
  void set_data_position(const DataPosition& position);
  /// Of Dropout and other random operators; does nothing where there are none.
  void set_seed(std::uint64_t seed);

  // The rest of the model's life, on the same parameters.

  /// What evaluate() and predict() take: averages from the start where the steps keep any; where none, use() throws UserError.
  Weights weights() const;
  void use(Weights weights);
  bool keeps_average() const;

  /// Compiles and loads the inference form now rather than at the first use, so that what it lacks is known before the first step.
  void prepare_evaluation();
  /// Loss and metrics of the inference form over any number of rows. A last part that fills no batch is left out where a row's
  /// output depends on others of its batch, or the loss is no mean; UserError if that is all there is.
  Evaluation evaluate(const Batch& arrays);
  /// The model's outputs, by its own names.
  std::vector<NamedTensor> predict(const Batch& inputs);
  /// "loss", and the gradient of each trained parameter by its name, on one batch in training form; changes nothing.
  std::vector<NamedTensor> gradients(const Batch& batch);

  // Parameters and other states by name: parameters and running statistics by ONNX name, moments as "NAME.exp_avg",
  // "NAME.exp_avg_sq", "NAME.momentum", averages as "NAME.ema", and the step counter "step"; in f16 "loss_scale" and "good_steps".
  std::vector<std::string> trained() const;
  std::vector<std::string> states() const;
  Tensor read(std::string_view state) const;
  /// Floats are converted to the state's dtype. Throws UserError for an unknown name or another shape.
  void write(std::string_view state, const TensorView& value);
  /// Throws UserError (exit 8) naming the first parameter or running statistic that holds NaN or infinity.
  void check_finite() const;
  /// SHA-256 over names, types and bytes of parameters and running statistics.
  std::string weights_digest() const;

  /// To a path ending in .onnx: the file that the model came from, with trained weights, BatchNormalization and Dropout in
  /// inference form unless TrainOptions says otherwise. To one ending in .gcx: an artifact that holds everything, moments included,
  /// and needs no compiler on this kind of machine. The file appears whole or not at all. Of an .onnx of more than 2 GiB the
  /// weights go to NAME.onnx.data beside it, which must not be where the model's own are read from.
  void save(const Path& path);
  /// The same as .onnx with averaged parameters, where they are asked for.
  void save(const Path& path, Weights weights);
  /// Replaces TrainOptions::export_form, which a loaded trainer was not given.
  void set_export_form(ExportForm form);
  /// Likewise TrainOptions::export_preprocessing.
  void set_export_preprocessing(bool prepend);
  /// GraphOptions::input_forms, ::preprocessing and ::number_names, which an artifact keeps.
  const std::vector<InputForm>& input_forms() const;
  const std::string& preprocessing() const;
  const std::string& number_names() const;
  /// Replaces TrainOptions::keep_model; after load(), `whole` needs prepare_export().
  void set_keep_model(KeepModel keep);
  /// After load(): finds the ONNX file that the artifact came from now, rather than in save(), so that what is missing is known
  /// before the first step. Throws UserError with path, SHA-256 and cure.
  void prepare_export();
  /// The output that a loss without arguments looks at; "" for others, and after load().
  const std::string& loss_output() const;
  /// One line each: what training changes in the file's meaning, which parameters it ties and splits; after load() whether timed
  /// choices are not taken.
  const std::vector<std::string>& notes() const;
  /// "cpu, 2 threads, ...", and why this device.
  std::string device() const;

  struct Impl;  // gcomp/driver/trainer_impl.h, in the source tree
  explicit Trainer(Owned<Impl> impl);
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  Owned<Impl> impl_;
};

/// Trainer(model, options).
Trainer compile(const Model& model, const TrainOptions& options);

}  // namespace gcomp
