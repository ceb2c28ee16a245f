// Types in messages of inference rules, spelled only when a message is written: every node is inferred several times.
#pragma once

#include <cstdint>
#include <limits>
#include <ostream>
#include <string>

#include "ir/base/error.h"
#include "ir/base/tensor.h"

namespace gcomp::ir::ops {

template <class T>
struct Shown {
  const T& value;
  friend std::ostream& operator<<(std::ostream& out, const Shown& shown) { return out << to_string(shown.value); }
};

/// To be used as an argument of InferContext::require: `value` must outlive the call alone.
template <class T>
Shown<T> shown(const T& value) {
  return {value};
}

/// "0 to 255", of what is no float.
inline std::string range_text(DType dtype) {
  if (dtype == DType::boolean) return "0 or 1";
  const auto unused = 64 - 8 * static_cast<int>(size_of(dtype));
  if (is_unsigned_integer(dtype)) return concat("0 to ", std::numeric_limits<std::uint64_t>::max() >> unused);
  return concat(std::numeric_limits<std::int64_t>::min() >> unused, " to ", std::numeric_limits<std::int64_t>::max() >> unused);
}

}  // namespace gcomp::ir::ops
