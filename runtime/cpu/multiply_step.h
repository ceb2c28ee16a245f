// What the kernels of products and convolutions (gemm_kernel.h, convolution_kernel.h) add in a step of a sum, and numbers below the
// normal ones as zeros around them. Compiled with them once per instruction set, with internal linkage.
#pragma once

#include <stdint.h>

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

/// While it lives, this thread's vector instructions read and make zeros for numbers below 2^-126; on x86-64.
class SubnormalsAsZeros {
 public:
#if defined(__x86_64__)
  SubnormalsAsZeros() {
    constexpr unsigned kResults = 0x8000, kOperands = 0x40;
    asm volatile("stmxcsr %0" : "=m"(before_) : : "memory");
    const unsigned flushed = before_ | kResults | kOperands;
    asm volatile("ldmxcsr %0" : : "m"(flushed) : "memory");
  }
  ~SubnormalsAsZeros() { asm volatile("ldmxcsr %0" : : "m"(before_) : "memory"); }
#else
  SubnormalsAsZeros() = default;
  ~SubnormalsAsZeros() {}
#endif
  SubnormalsAsZeros(const SubnormalsAsZeros&) = delete;
  SubnormalsAsZeros& operator=(const SubnormalsAsZeros&) = delete;

 private:
  unsigned before_ = 0;
};

}  // namespace
}  // namespace gcomp::runtime::cpu
