// The .npz files of a run, and which of their arrays a model and its loss read.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gcomp/driver/training.h"

namespace gcomp::tools {

/// The arrays of these names, of any shapes.
std::vector<NamedTensor> load_arrays(const std::string& path, const std::vector<std::string>& names);
Batch views_of(const std::vector<NamedTensor>& arrays);

/// Inputs of the model, and the arrays that the loss and the metrics read beside them.
std::vector<std::string> array_names(const Model& model, const driver::LossSpec& loss,
                                     std::span<const passes::MetricSpec> metrics = {});

/// Throws UserError (exit 2) where a loss or metric names what is neither an output or input of the model nor an array of the file.
void require_names(const Model& model, const driver::LossSpec& loss, std::span<const passes::MetricSpec> metrics,
                   const std::string& path);

/// Types of the arrays, for the binding of shapes.
std::map<std::string, TensorType> types_of(const std::vector<NamedTensor>& arrays);

}  // namespace gcomp::tools
