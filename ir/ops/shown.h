// Types in messages of inference rules, spelled only when a message is written: every node is inferred several times.
#pragma once

#include <ostream>

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

}  // namespace gcomp::ir::ops
