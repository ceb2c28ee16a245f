#include "ir/base/finite.h"

#include <algorithm>
#include <cmath>

namespace gcomp {

bool is_finite(const Tensor& tensor) {
  const auto finite = [](auto value) { return std::isfinite(value); };
  if (tensor.dtype() == DType::f32) return std::ranges::all_of(tensor.as<float>(), finite);
  if (tensor.dtype() == DType::f64) return std::ranges::all_of(tensor.as<double>(), finite);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    if (!std::isfinite(tensor.at(i))) return false;
  return true;
}

}  // namespace gcomp
