// A compiled model from its .gcx file, trained and asked without the compiler half of gcomp: link gcomp::runtime.
//
//   gcomp::LoadedModel model("model.gcx");
//   auto outputs = model.predict({{"x", {pixels, {64, 784}}}});
//   if (model.trains()) loss = model.train_step({{"x", ...}, {"label", ...}});
//
// What gcomp::gcomp adds (ONNX, other batch sizes, evaluation, gradients) is Trainer and Predictor. Belongs to one thread at a
// time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gcomp/artifact_trust.h"
#include "gcomp/device_options.h"
#include "gcomp/error.h"
#include "gcomp/input_form.h"
#include "gcomp/owned.h"
#include "gcomp/path.h"
#include "gcomp/tensor_view.h"

namespace gcomp {

class LoadedModel {
 public:
  /// A file that gcomp compile or Trainer::save() wrote; needs no C++ compiler on the kind of machine that wrote it. Throws
  /// UserError (exit 2) where it is compiled for another device than `device`, DeviceError where that one cannot be had.
  explicit LoadedModel(const Path& path, const DeviceOptions& options = {}, DeviceRequest device = DeviceRequest::automatic,
                       const ArtifactTrust& trust = {});
  LoadedModel(LoadedModel&&) noexcept;
  LoadedModel& operator=(LoadedModel&&) noexcept;
  ~LoadedModel();

  /// Names of the inputs of predict().
  std::vector<std::string> input_names() const;
  /// Of inputs that are fed as bytes, and what was done to rows before they came (GraphOptions).
  const std::vector<InputForm>& input_forms() const;
  const std::string& preprocessing() const;
  /// What numbers of its data stood for, such as classes: JSON (GraphOptions); "" where nothing had names.
  const std::string& number_names() const;
  /// The model's outputs in inference form, by its own names. Throws UserError where an array is missing, has
  /// another row type, another number of rows than the rest, or an index out of range.
  std::vector<NamedTensor> predict(const Batch& inputs);

  /// Whether the file holds a training step.
  bool trains() const;
  /// One step on arrays of whole batches, "label" among them; gives the loss before the step. Throws UserError as
  /// Trainer::train_step() does, and where trains() is false.
  double train_step(const Batch& batch);
  double learning_rate() const;
  /// Throws UserError for what is not finite, or below 0.
  void set_learning_rate(double rate);

  /// Parameters, running statistics and optimizer states by the names that Trainer gives them.
  std::vector<std::string> states() const;
  Tensor read(std::string_view state) const;
  /// Throws UserError for an unknown name or another type.
  void write(std::string_view state, const Tensor& value);
  /// The file again with the states as they are now; it appears whole or not at all.
  void save(const Path& path) const;

  /// "cpu, 2 threads, AVX-512, AMD EPYC".
  std::string device() const;

 private:
  struct Impl;
  Owned<Impl> impl_;
};

}  // namespace gcomp
