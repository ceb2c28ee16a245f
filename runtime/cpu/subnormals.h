// Numbers below the normal ones: on an Intel Xeon products of them took fifty times as long.
#pragma once

namespace gcomp::runtime::cpu {

/// While it lives, this thread's vector instructions read and make zeros for numbers below 2^-126 (of f64 2^-1022), or do as IEEE
/// says; on x86-64.
template <bool kAsZeros>
class Subnormals {
 public:
  // Inlined: what is compiled once per instruction set has no function in common with the rest.
#if defined(__x86_64__)
  [[gnu::always_inline]] inline Subnormals() {
    constexpr unsigned kResults = 0x8000, kOperands = 0x40;
    asm volatile("stmxcsr %0" : "=m"(before_) : : "memory");
    const unsigned now = kAsZeros ? before_ | kResults | kOperands : before_ & ~(kResults | kOperands);
    asm volatile("ldmxcsr %0" : : "m"(now) : "memory");
  }
  [[gnu::always_inline]] inline ~Subnormals() { asm volatile("ldmxcsr %0" : : "m"(before_) : "memory"); }
#else
  Subnormals() = default;
  ~Subnormals() {}
#endif
  Subnormals(const Subnormals&) = delete;
  Subnormals& operator=(const Subnormals&) = delete;

 private:
  unsigned before_ = 0;
};
using SubnormalsAsZeros = Subnormals<true>;
using SubnormalsKept = Subnormals<false>;

}  // namespace gcomp::runtime::cpu
