#pragma once

#include <cmath>

namespace gcomp::driver {

/// For messages: NaN may carry a sign, which says nothing.
inline double without_sign_of_nan(double value) { return std::isnan(value) ? std::abs(value) : value; }

}  // namespace gcomp::driver
