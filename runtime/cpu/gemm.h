// The built-in matrix product for f32 and f64: any strides, no allocation, the same bits for every split of C.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gcomp::runtime::cpu {

/// Rows of A that one pass packs at most.
inline constexpr int64_t kGemmRows = 512;

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

/// The two functions for this processor.
struct GemmFunctions {
  GemmFunction f32 = nullptr;
  GemmFunction f64 = nullptr;
  const char* instruction_set = "";
};

/// The best ones that the processor supports.
const GemmFunctions& gemm_functions();
/// The index-th best, or nullptr behind the last; for tests.
const GemmFunctions* supported_gemm_functions(int index);
int64_t gemm_scratch_bytes();

}  // namespace gcomp::runtime::cpu
