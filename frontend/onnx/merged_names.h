// Initializers of equal value that the exporter merged and whose names it left: PyTorch's older exporter keeps one of them and
// makes each other one an Identity of it, under the name that it had.
#pragma once

#include <map>
#include <string>

#include "onnx/onnx.pb.h"

namespace gcomp::frontend {

/// Makes initializers of such Identity nodes again; in training form, where only what shares its memory is merged, has their
/// readers read the one that is kept. Has batch norms read an initializer itself where some other Identity of it stands between.
/// Gives the name of each restored initializer -> that which it was merged into.
std::map<std::string, std::string> restore_merged(::onnx::ModelProto& model, std::int64_t opset);

}  // namespace gcomp::frontend
