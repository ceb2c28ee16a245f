// Running a model without training it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gcomp/artifact_trust.h"
#include "gcomp/compile_options.h"
#include "gcomp/device_options.h"
#include "gcomp/model.h"
#include "gcomp/owned.h"
#include "gcomp/tensor_view.h"

namespace gcomp {

struct PredictOptions {
  /// Rows of one run; 0: what the file or `graph` binds, or what follows from the model's shapes and the device, never from the
  /// arrays.
  std::int64_t batch = 0;
  GraphOptions graph = {};
  Path adapter = {};  ///< PEFT's file or folder: a low-rank adapter beside the model's weights (gcomp/lora.h)
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

/// Belongs to one thread at a time.
class Predictor {
 public:
  /// Compiles on the first predict(), and again when the shapes of the arrays change.
  Predictor(Model model, const PredictOptions& options);
  /// From a .gcx file; needs no compiler. Throws UserError (exit 2) where it is compiled for another device than `device`.
  static Predictor load(const Path& path, const DeviceOptions& options = {}, DeviceRequest device = DeviceRequest::automatic,
                        const ArtifactTrust& trust = {});
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;
  ~Predictor();

  /// Compiles for arrays of these types, by name, as predict() would. Nothing is left to compile for arrays that differ in their
  /// number of rows alone, unless all rows run at once.
  void prepare(const std::vector<NamedType>& types);
  /// Rows of one run, once compiled; 0 where the inputs have no number of rows in common.
  std::int64_t batch() const;
  /// Whether arrays of any number of rows can be given in parts, once compiled.
  bool runs_in_batches() const;
  /// Why all rows run at once, where that is known: "node 'n' makes a row depend on others or on its number".
  const std::string& undivided() const;
  /// Names and types of the outputs for so many rows, once compiled and run in batches.
  std::vector<NamedType> output_types(std::int64_t rows) const;
  /// The model's outputs, by its own names. Elements are converted to what the inputs want; arrays that the model does not have as
  /// inputs are not looked at. `first_row` is what messages call the first row, where the arrays are a part of longer ones. Throws
  /// UserError where an array is missing, has another row type, another number of rows than the rest, or an index out of range.
  std::vector<NamedTensor> predict(const Batch& inputs, std::int64_t first_row = 0);
  /// Names of the inputs.
  std::vector<std::string> input_names() const;
  /// GraphOptions::input_forms, ::preprocessing and ::number_names, which a .gcx keeps.
  const std::vector<InputForm>& input_forms() const;
  const std::string& preprocessing() const;
  const std::string& number_names() const;
  /// "cpu, 2 threads, ...", and why this device.
  std::string device() const;

  struct Impl;  // gcomp/predictor.cpp
  explicit Predictor(Owned<Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  Owned<Impl> impl_;
};

}  // namespace gcomp
