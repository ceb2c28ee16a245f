// Floating-point weights that are no initializers of the main graph: they count as the file has them, and nothing trains them.
#pragma once

#include <string>
#include <vector>

#include "frontend/imported_model.h"
#include "frontend/onnx/source.h"

namespace gcomp::frontend {

/// Initializers of bodies of If, Loop and Scan, and constants of rank 2 or more there, in functions that are called and in the main
/// graph but for those of one value. What has one element is a number and left out. Each place once, in the file's order.
std::vector<FixedWeight> fixed_weights(const Source& source);

}  // namespace gcomp::frontend
