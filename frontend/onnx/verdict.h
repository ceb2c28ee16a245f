// Whether an initializer trains, read from its uses, its name and its values: for files that do not say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/uses.h"
#include "ir/base/tensor.h"

namespace gcomp::frontend {

struct Verdict {
  bool trained = false;
  bool doubtful = false;  ///< the other answer is possible: a trained value may be a buffer, a frozen one a parameter
  std::string reason;
};
/// How a file calls what its modules own.
enum class Naming {
  unknown,
  module_paths,  ///< as PyTorch: layers name theirs "fc.weight", so that another name is one that the model's author gave
};
Verdict verdict_of(const std::string& name, const Tensor& values, const std::vector<Use>& uses, Naming naming);

/// "fc.weight", "gru.weight_ih_l0", "blocks.0.gamma_1", "cls_token": names that parameters have and buffers have not.
bool is_parameter_name(std::string_view name);

/// "weight of Gemm", "scale of LayerNormalization".
std::string used_as(const Use& use);

/// Names that exporters make up: val_14, onnx::Conv_28, 123, /blocks.0/Constant_output_0.
bool is_anonymous(std::string_view name);
/// "blocks.0.ln.weight": a parameter's path from the model down.
bool has_module_path(std::string_view name);
bool has_one_value(const Tensor& tensor);

}  // namespace gcomp::frontend
