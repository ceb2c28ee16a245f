// A whole model compiled ahead of time: what `gcomp compile -o model.gcx` writes.
#pragma once

#include <string>
#include <vector>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/original_model.h"
#include "runtime/artifact.h"
#include "runtime/device.h"

namespace gcomp::driver {

struct ArtifactOptions {
  GraphOptions graph = {};
  runtime::Target target = {};
  std::string loss;                  ///< "" for inference alone
  std::string output;                ///< what the loss looks at; "" for the first output of floats
  std::vector<std::string> metrics;  ///< of an evaluation; without any, accuracy where the loss decides
  Optimizer optimizer = {};
  double learning_rate = 1e-3;                     ///< where a run gives none
  KeepModel keep_model = KeepModel::by_reference;  ///< with a training step: for its export as .onnx
  runtime::DeviceOptions device_options = {};      ///< for the CPU's compiler and cache
  CompileHooks hooks = {};
};

struct CompiledModel {
  runtime::Artifact artifact;
  frontend::ImportedModel model;  ///< what import decided; its graph and weights are empty
  std::string output;             ///< what the loss looks at where it has no arguments
};

/// The forward program, the training step where there is a loss, and the weights. The kernels are compiled too, so that
/// the artifact runs without a compiler on this kind of processor, or on GPUs of the target's architecture.
CompiledModel compile_model(const Model& model, const ArtifactOptions& options);

}  // namespace gcomp::driver
