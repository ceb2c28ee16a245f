// Whether an initializer trains, read from its uses, its name and its values: for files that do not say it.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/names.h"
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

/// "weight of Gemm", "scale of LayerNormalization".
std::string used_as(const Use& use);

bool has_one_value(const Tensor& tensor);

}  // namespace gcomp::frontend
