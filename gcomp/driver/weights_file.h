// Weights from whatever holds some: a safetensors file, an ONNX file, an artifact, a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "ir/base/tensor.h"

namespace gcomp::driver {

/// Tensors of floats by the names of parameters, running statistics or initializers; of a checkpoint and an artifact none but
/// parameters and statistics. Throws UserError, also (exit 2) for an ending that says none of these.
std::map<std::string, Tensor> read_weights(const std::filesystem::path& path);

}  // namespace gcomp::driver
