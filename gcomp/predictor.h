// Running a model without training it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/forward.h"
#include "gcomp/driver/row_batches.h"
#include "runtime/artifact_trust.h"
#include "runtime/device.h"

namespace gcomp {

struct PredictOptions {
  std::int64_t batch = 0;  ///< rows of one run; 0: what follows from the model's shapes (driver/row_batches.h)
  GraphOptions graph = {};
  runtime::DeviceRequest device = runtime::DeviceRequest::automatic;
  runtime::DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

/// Belongs to one thread at a time.
class Predictor {
 public:
  /// Compiles on the first predict(), and again when the shapes of the arrays change.
  Predictor(Model model, PredictOptions options);
  /// From a .gcx file; needs no compiler. Throws UserError (exit 2) where it is compiled for another device than `device`.
  static Predictor load(const std::filesystem::path& path, const runtime::DeviceOptions& options = {},
                        runtime::DeviceRequest device = runtime::DeviceRequest::automatic,
                        const runtime::ArtifactTrust& trust = {});

  /// Compiles for arrays of these types, by name, as predict() would. Nothing is left to compile for arrays that differ in their
  /// number of rows alone, unless all rows run at once.
  void prepare(const std::map<std::string, TensorType>& types);
  /// Rows of one run, once compiled; 0 where the inputs have no number of rows in common.
  std::int64_t batch() const { return forward_->batch(); }
  /// Whether arrays of any number of rows can be given in parts, once compiled.
  bool runs_in_batches() const;
  /// Why all rows run at once, where that is known: "node 'n' makes a row depend on others or on its number".
  const std::string& undivided() const { return rows_.reason; }
  /// Names and types of the outputs for so many rows, once compiled and run in batches.
  std::vector<std::pair<std::string, TensorType>> output_types(std::int64_t rows) const;
  /// The model's outputs, by its own names. `first_row` is what messages call the first row, where the arrays are a part of longer
  /// ones. Throws UserError as Forward::run() does.
  std::vector<NamedTensor> predict(const Batch& inputs, std::int64_t first_row = 0);
  /// Names of the inputs.
  std::vector<std::string> input_names() const;
  std::string device() const;
  /// Nodes that run in another form than the file has them in, once prepared; none for a .gcx, which does not tell.
  frontend::FormCounts::Nodes switched_forms() const;

 private:
  Predictor() = default;
  bool serves(const std::map<std::string, TensorType>& types) const;

  std::optional<Model> model_;
  PredictOptions options_;
  std::string device_reason_;
  std::shared_ptr<runtime::Device> device_;
  std::shared_ptr<Forward> forward_;
  std::map<std::string, TensorType> compiled_for_;
  RowBatches rows_;
  frontend::FormCounts forms_;
};

}  // namespace gcomp
