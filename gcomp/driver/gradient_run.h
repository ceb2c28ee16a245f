// gcomp::Gradients for those who know more of a model than its user says, or look inside it.
#pragma once

#include "gcomp/driver/compile.h"
#include "gcomp/gradients.h"

namespace gcomp::driver {

/// gcomp::GradientOptions with the driver's own GraphOptions and CompileHooks.
struct GradientOptions {
  LossSpec loss;
  GraphOptions graph = {};  ///< floats compute as f32 where no precision is given
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

/// Gradients(model, options).
Gradients make_gradients(const Model& model, const GradientOptions& options);

/// What import decided; the graph in it is empty.
const frontend::ImportedModel& imported_model(const Gradients& gradients);

}  // namespace gcomp::driver
