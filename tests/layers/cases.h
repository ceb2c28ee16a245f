// The layers of PyTorch's record (tests/fixtures/layers/record.py), written with gcomp's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gcomp/layers.h"

namespace gcomp::test {

struct LayerCase {
  std::string name;  ///< "convolution/1d_options", as in the record
  /// From the recorded inputs to all outputs; layers are called `name`.
  std::function<std::vector<Var>(Layers& nn, const std::string& name, const std::vector<Var>& inputs)> write;
};

/// Cases whose names begin with "FAMILY/".
std::vector<LayerCase> layer_cases(const std::string& family);
std::vector<std::string> layer_families();

}  // namespace gcomp::test
