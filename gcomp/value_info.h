// What a model declares of an input or output before its shapes are bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gcomp/tensor.h"

namespace gcomp {

/// One dimension: a number, or -1 and the symbol that GraphOptions::dims binds (may be empty).
struct Dimension {
  std::int64_t size = -1;
  std::string symbol;
};

struct ValueInfo {
  std::string name;
  DType dtype = DType::f32;
  bool has_shape = false;
  std::vector<Dimension> dimensions;
};
/// "x: f32[batch,20]"; an unnamed unknown dimension is "?".
std::string to_string(const ValueInfo& value);

}  // namespace gcomp
