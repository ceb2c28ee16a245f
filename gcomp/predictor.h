// Running a model without training it.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "gcomp/compile.h"
#include "gcomp/forward.h"
#include "runtime/device.h"

namespace gcomp {

struct PredictOptions {
  std::int64_t batch = 0;  ///< rows of one run; 0 takes all rows of the arrays at once
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
                        runtime::DeviceRequest device = runtime::DeviceRequest::automatic);

  /// Compiles for the shapes of these arrays, as predict() would.
  void prepare(const Batch& inputs);
  /// Rows of one run, once compiled; 0 where the inputs have no number of rows in common.
  std::int64_t batch() const { return forward_->batch(); }
  /// The model's outputs, by its own names. Throws UserError as Forward::run() does.
  std::vector<NamedTensor> predict(const Batch& inputs);
  /// Names of the inputs.
  std::vector<std::string> input_names() const;
  std::string device() const;
  /// Nodes that run in another form than the file has them in, once prepared; none for a .gcx, which does not tell.
  frontend::FormCounts::Nodes switched_forms() const;

 private:
  Predictor() = default;

  std::optional<Model> model_;
  PredictOptions options_;
  std::string device_reason_;
  std::shared_ptr<runtime::Device> device_;
  std::shared_ptr<Forward> forward_;
  std::vector<std::pair<std::string, Shape>> compiled_for_;
  frontend::FormCounts forms_;
};

}  // namespace gcomp
