// A SavedModel filled from the graphs that its programs are compiled from.
#pragma once

#include <span>
#include <string>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/evaluator.h"
#include "gcomp/driver/saved_model.h"

namespace gcomp::driver {

/// What is known of a model before its forward pass is made; `training` is null where it has no training step. `loss` is as the
/// user wrote it.
SavedModel describe_model(const Model& model, const std::string& loss, double learning_rate, const ModelGraph* training);
/// Adds what the graph of the forward pass tells, which was made of that model by those options.
void describe_forward(SavedModel& saved, const Model& model, const GraphOptions& options, const ModelGraph& forward);
/// Adds what the program that evaluates gives.
void describe_evaluation(SavedModel& saved, const EvaluationGraph& evaluation, std::span<const passes::MetricSpec> metrics);
/// What an Evaluator needs to know; the inverse. Throws UserError where a loss or metric is none, or does not fit.
EvaluatedModel evaluated_model(const SavedModel& saved);

}  // namespace gcomp::driver
