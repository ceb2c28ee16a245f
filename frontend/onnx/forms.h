// The two forms of BatchNormalization and Dropout: in a file, and from training to inference. Older opsets say it by `is_test` or
// by the number of outputs, newer ones by `training_mode`.
#pragma once

#include <cstdint>
#include <string_view>

#include "frontend/onnx/source.h"

namespace gcomp::frontend {

/// Whether a node is this operator of ONNX itself.
bool is_standard(const ::onnx::NodeProto& node, std::string_view op);
/// Whether a BatchNormalization of this opset normalises by the batch.
bool batch_norm_trains(const ::onnx::NodeProto& node, std::int64_t opset);

/// Key of metadata_props: the first outputs of the BatchNormalization nodes whose running variance is the population's, one a line.
/// A node in training form from opset 14 on means that by its specification; in inference form nothing else tells.
inline constexpr char kPopulationVariance[] = "gcomp.population_variance";

/// Whether that is written down for this node.
bool keeps_population_variance(const ::onnx::ModelProto& model, const ::onnx::NodeProto& node);

/// Every BatchNormalization and Dropout of graph, subgraphs and functions in inference form. Updated statistics that something
/// reads become the statistics that the node is given; kPopulationVariance keeps what would be lost. Other nodes stay as they are.
void write_inference_form(::onnx::ModelProto& model);

}  // namespace gcomp::frontend
