// Whether numbers are finite, of large arrays in as long as they take to be read.
#pragma once

#include "ir/base/tensor.h"

namespace gcomp {

/// Of all elements: neither NaN nor infinite.
bool is_finite(const Tensor& tensor);

}  // namespace gcomp
