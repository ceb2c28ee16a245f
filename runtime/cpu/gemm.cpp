#include "runtime/cpu/gemm.h"

#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

#if defined(__x86_64__)
extern const GemmFunctions kGemmAvx512;
extern const GemmFunction kGemmAvx512Bf16;
extern const GemmFunctions kGemmAvx2;
#endif
extern const GemmFunctions kGemmBaseline;

const GemmFunctions& gemm_functions(InstructionSet set) {
#if defined(__x86_64__)
  static const GemmFunctions with_pairs{kGemmAvx512.f32, kGemmAvx512.f64, kGemmAvx512Bf16, kGemmAvx512.half};
  static const bool pairs = has_bf16_products();
  if (vectors_of(set) == InstructionSet::avx512) return pairs ? with_pairs : kGemmAvx512;
  if (set == InstructionSet::avx2) return kGemmAvx2;
#endif
  static_cast<void>(set);
  return kGemmBaseline;
}

const GemmFunctions& gemm_functions() {
  static const GemmFunctions& widest = gemm_functions(widest_instruction_set());
  return widest;
}

int64_t gemm_scratch_bytes() {
  // In elements of 8 bytes: kGemmRows x kGemmDepth of A, and kGemmDepth x 512 of B, which panels of at most 32 columns divide.
  return (kGemmRows * kGemmDepth + kGemmDepth * 512) * 8;
}

int64_t gemm_pack_b_tasks(int64_t n, int64_t k, int64_t depth) {
  return ((n + kGemmColumns - 1) / kGemmColumns) * ((k + depth - 1) / depth);
}

int64_t gemm_packed_b_bytes(int64_t n, int64_t k, int64_t element_bytes) {
  constexpr int64_t kWidest = 32;  // columns of a panel
  return (n + kWidest - 1) / kWidest * kWidest * k * element_bytes;
}

int64_t gemm_pack_tasks(int64_t m, int64_t k, int64_t depth) {
  return ((m + kGemmRows - 1) / kGemmRows) * ((k + depth - 1) / depth);
}

int64_t gemm_packed_bytes(int64_t m, int64_t k, int64_t element_bytes) {
  constexpr int64_t kMostRows = 12;  // of a panel, which are whole
  return (m + kMostRows - 1) * k * element_bytes;
}

}  // namespace gcomp::runtime::cpu
