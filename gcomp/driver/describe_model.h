// A SavedModel filled from the graphs that its programs are compiled from.
#pragma once

#include <string>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/saved_model.h"

namespace gcomp::driver {

/// What is known of a model before its forward pass is made; `training` is null where it has no training step. `loss` is as the
/// user wrote it.
SavedModel describe_model(const Model& model, const std::string& loss, double learning_rate, const ModelGraph* training);
/// Adds what the graph of the forward pass tells. `loss` is settled; not looked at where there is no training step.
void describe_forward(SavedModel& saved, const ModelGraph& forward, const LossSpec& loss);

}  // namespace gcomp::driver
