// The loss and its gradient with respect to every trained parameter, on one batch, without training.
#pragma once

#include <string>
#include <vector>

#include "gcomp/compile_options.h"
#include "gcomp/device_options.h"
#include "gcomp/model.h"
#include "gcomp/owned.h"
#include "gcomp/tensor_view.h"

namespace gcomp {

struct GradientOptions {
  std::string loss = "cross_entropy";  ///< as TrainOptions::loss
  std::string output = {};             ///< what the loss looks at; "" for the first output of floats
  /// Floats compute as f32 where no precision is given. Its `dims` bind the rows: {{"batch", 4}} for a model defined in C++.
  GraphOptions graph = {};
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

/// Belongs to one thread at a time.
class Gradients {
 public:
  /// Throws UserError where nothing is trained, and with exit 4 and every node concerned where the loss cannot be differentiated.
  Gradients(const Model& model, const GradientOptions& options);
  Gradients(Gradients&&) noexcept;
  Gradients& operator=(Gradients&&) noexcept;
  ~Gradients();

  /// "loss", then an array for each trained initializer by its ONNX name. Where training splits an initializer into one parameter
  /// for each use, each part has its own array, and the initializer's is their sum; a tied one has its shared parameter's. Throws
  /// UserError as Predictor::predict() does.
  std::vector<NamedTensor> run(const Batch& batch);

  /// The output that the loss looks at; "" where an output is the loss.
  std::string loss_output() const;
  /// "cpu, 2 threads, ...", and why this device.
  std::string device() const;

  struct Impl;  // gcomp/gradients.cpp
  explicit Gradients(Owned<Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  Owned<Impl> impl_;
};

}  // namespace gcomp
