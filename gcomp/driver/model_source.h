// Where a model comes from, and the graph that it becomes.
#pragma once

#include <memory>

#include "frontend/onnx/import.h"
#include "gcomp/model.h"

namespace gcomp::driver {

/// Null for a model that is no ONNX file.
const frontend::OnnxFile* onnx_file(const Model& model);

/// The model with another file in the place of its own.
Model with_file(const Model& model, frontend::OnnxFile file);

/// The graph with static shapes, and its weights. Throws UserError as frontend::import_onnx() and frontend::instantiate() do.
frontend::ImportedModel instantiate(const Model& model, const frontend::ImportOptions& options);

/// While the result lives, whatever instantiate() reads for the model is read once.
std::shared_ptr<const void> keep_data(const Model& model);

}  // namespace gcomp::driver
