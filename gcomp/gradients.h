// The loss and its gradient with respect to every trained parameter, on one batch, without training.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/forward.h"
#include "runtime/device.h"

namespace gcomp {

struct GradientOptions {
  LossSpec loss;
  GraphOptions graph = {};  ///< floats compute as f32 where no precision is given
  runtime::DeviceRequest device = runtime::DeviceRequest::automatic;
  runtime::DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

/// Belongs to one thread at a time.
class Gradients {
 public:
  Gradients(const Model& model, const GradientOptions& options);

  /// "loss", then an array for each trained initializer by its ONNX name. Where training splits an initializer into one parameter
  /// for each use, each part has its own array, and the initializer's is their sum; a tied one has its shared parameter's. Throws
  /// UserError as Forward::run() does.
  std::vector<NamedTensor> run(const Batch& batch);

  const frontend::Model& model() const { return model_; }
  /// The output that the loss looks at; "" where an output is the loss.
  std::string loss_output() const { return target_ ? target_->output.name : ""; }
  std::string device() const;

 private:
  frontend::Model model_;
  std::optional<LossTarget> target_;
  std::string device_reason_;
  std::shared_ptr<runtime::Device> device_;
  std::unique_ptr<Forward> forward_;
};

}  // namespace gcomp
