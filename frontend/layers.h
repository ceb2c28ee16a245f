// Models that are functions of gcomp/layers.h, as graphs: the frontend for what is written in C++.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "frontend/import_options.h"
#include "frontend/imported_model.h"
#include "gcomp/layers.h"

namespace gcomp::frontend {

struct Definition {
  std::function<void(Layers&)> write;
  std::uint64_t seed = 0;  ///< of the initial weights; each depends on the seed and its own name alone
};

/// What the definition declares, with the symbol "batch" for kBatch.
std::vector<ValueInfo> inputs_of(const Definition& definition);

/// Runs the definition as import_onnx() lowers a file: `options.dims` binds "batch", `float_type`, `training` and `freeze` mean
/// the same. Throws UserError where it has no output, or a name is used twice.
ImportedModel instantiate(const Definition& definition, const ImportOptions& options);

}  // namespace gcomp::frontend
