// What the kernels of products and convolutions (gemm_kernel.h, convolution_kernel.h) add in a step of a sum. Compiled with them
// once per instruction set, with internal linkage.
#pragma once

#include <stdint.h>

#include "runtime/cpu/subnormals.h"

namespace gcomp::runtime::cpu {
namespace {

/// A row of one operand times an element of the other.
struct MultiplyAdd {
  static constexpr int64_t kElements = 1;  ///< of the operands' dtype in what the kernel takes as one
  template <class Vector, class T>
  static inline __attribute__((always_inline)) void add(Vector& sum, const Vector& row, T element) {
    sum += row * element;
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
