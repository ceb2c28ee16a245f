// What the kernels of products and convolutions (gemm_kernel.h, convolution_kernel.h) add in a step of a sum. Compiled with them
// once per instruction set, with internal linkage.
#pragma once

#include <stdint.h>

#include "runtime/cpu/subnormals.h"

namespace gcomp::runtime::cpu {
namespace {

/// Steps of a sum that are written out one behind the other (../README.md).
#if defined(GCOMP_UNROLLED_STEPS)
constexpr int kUnrolledSteps = GCOMP_UNROLLED_STEPS;
#else
constexpr int kUnrolledSteps = 4;
#endif

/// A row of one operand times an element of the other.
struct MultiplyAdd {
  static constexpr int64_t kElements = 1;  ///< of the operands' dtype in what the kernel takes as one

  /// An element in memory as add() takes it, for all rows of its step.
  template <class Vector, class T>
  static inline __attribute__((always_inline)) T all(const T& element) {
    return element;
  }
  template <class Vector, class T>
  static inline __attribute__((always_inline)) void add(Vector& sum, const Vector& row, T element) {
    sum += row * element;
  }
};

#if defined(__AVX512F__)
/// The same with instructions by name: GCC would also take those that leave a sum in another register, and copies sums about in
/// every step of a product, some to memory and back (up to 1.03 times its time).
struct MultiplyAddInPlace {
  static constexpr int64_t kElements = 1;

  template <class Vector, class T>
  static inline __attribute__((always_inline)) Vector all(const T& element) {
    Vector vector;
    if constexpr (sizeof(T) == 4) asm("vbroadcastss %1, %0" : "=v"(vector) : "m"(element));
    else asm("vbroadcastsd %1, %0" : "=v"(vector) : "m"(element));
    return vector;
  }
  template <class Vector>
  static inline __attribute__((always_inline)) void add(Vector& sum, const Vector& row, const Vector& element) {
    if constexpr (sizeof(sum[0]) == 4) asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(element));
    else asm("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(element));
  }
};
#endif

}  // namespace
}  // namespace gcomp::runtime::cpu
