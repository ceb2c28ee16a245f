// The built-in matrix product for f32 and f64: any strides, no allocation, the same bits for every split of C.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Declared here, not included: no inline function may come into the files that are compiled for newer processors (gemm_kernel.h).
namespace gcomp {
enum class InstructionSet : uint8_t;
}

namespace gcomp::runtime::cpu {

/// Rows of A that one pass packs at most.
inline constexpr int64_t kGemmRows = 264;

/// A matrix in memory; strides in elements.
struct StridedMatrix {
  void* data = nullptr;
  int64_t row = 0, column = 0;
};

/// c[m, n] = a[m, k] * b[k, n] on the calling thread. `scratch` is 64-byte aligned and holds gemm_scratch_bytes().
struct GemmBlock {
  int64_t m = 0, n = 0, k = 0;
  StridedMatrix a, b, c;
  void* scratch = nullptr;
};

using GemmFunction = void (*)(const GemmBlock&);

struct GemmFunctions {
  GemmFunction f32 = nullptr;
  GemmFunction f64 = nullptr;
  bool before_library = false;  ///< measured to be at least as fast as oneDNN with these instructions
};

/// The two for an instruction set, which the processor must have.
const GemmFunctions& gemm_functions(InstructionSet set);
/// The two for the widest that it has.
const GemmFunctions& gemm_functions();
int64_t gemm_scratch_bytes();

}  // namespace gcomp::runtime::cpu
