// ONNX files that something is wrong with, and data for them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "onnx/onnx.pb.h"

namespace gcomp::test {

/// y = x * w + b with x f32[batch, 3], w f32[3, 2], b f32[2], as opset 17; `change` may spoil it.
void write_linear_model(const std::filesystem::path& path, const std::function<void(onnx::ModelProto&)>& change = {});

/// x f32[8, 3], label i64[8] below 2 (for cross_entropy) under `label`, and f32[8, 2] under `target`.
void write_linear_data(const std::filesystem::path& path);

/// Appends a node with one input and one output, and makes it the graph's output.
void append_node(onnx::ModelProto& model, const std::string& op, const std::string& domain = "");

}  // namespace gcomp::test
