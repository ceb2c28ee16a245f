// What the name of an initializer tells.
#pragma once

#include <string_view>

namespace gcomp::frontend {

/// "fc.weight", "gru.weight_ih_l0", "blocks.0.gamma_1", "cls_token": names that parameters have and buffers have not.
bool is_parameter_name(std::string_view name);
/// Names that exporters make up: val_14, onnx::Conv_28, 123, /blocks.0/Constant_output_0.
bool is_anonymous(std::string_view name);
/// "blocks.0.ln.weight": a parameter's path from the model down.
bool has_module_path(std::string_view name);

}  // namespace gcomp::frontend
