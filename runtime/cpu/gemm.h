// The built-in matrix product for f32, f64 and bf16: any strides, no allocation, the same bits for every split of C.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Declared here, not included: no inline function may come into the files that are compiled for newer processors (gemm_kernel.h).
namespace gcomp {
enum class InstructionSet : uint8_t;
}

namespace gcomp::runtime::cpu {

/// Rows and columns of A that one pass packs at most.
inline constexpr int64_t kGemmRows = 264, kGemmDepth = 256;
/// Columns of a packed B beside which rows of A are read where they lie, or packed.
inline constexpr int64_t kGemmColumns = 256;

/// A matrix in memory; strides in elements.
struct StridedMatrix {
  void* data = nullptr;
  int64_t row = 0, column = 0;
};

/// c[m, n] = a[m, k] * b[k, n] on the calling thread, in elements of the kernel's (GemmFunction::elements). `scratch` is 64-byte
/// aligned and holds gemm_scratch_bytes().
struct GemmBlock {
  int64_t m = 0, n = 0, k = 0;
  StridedMatrix a, b, c;
  void* scratch = nullptr;
  void* packed_a = nullptr;  ///< gemm_packed_bytes(), written by all tasks of `pack`; null where the product packs for itself
  void* packed_b = nullptr;  ///< the same of `pack_b`: rows of A that are contiguous are then read where they lie
  bool add = false;          ///< to what c holds; where nothing is packed before
  bool from_memory = false;  ///< whether a and b are expected beyond the second cache, where nothing is packed before
};

struct GemmFunction {
  int64_t rows = 0, width = 0;  ///< of a tile of C: rows of A by columns of a panel of B
  int64_t depth = kGemmDepth;   ///< steps along k whose sum is made before it is added to C
  int64_t elements = 1;         ///< of the operands' dtype in a step along k: 2 where f32's place holds a pair of bf16
  void (*multiply)(const GemmBlock&) = nullptr;
  /// One of gemm_pack_tasks() parts of A into packed_a, for products of all columns of B.
  void (*pack)(const GemmBlock&, int64_t task) = nullptr;
  /// One of gemm_pack_b_tasks() parts of B into packed_b, for products of any rows of A: for each `depth` rows, one panel after
  /// the other, each [row][width] with zeros behind the last column.
  void (*pack_b)(const GemmBlock&, int64_t task) = nullptr;
};

/// Lines of f16 and bf16 on their way to a product and back.
struct HalfLines {
  void (*widen_f16)(const uint16_t* from, float* to, int64_t count) = nullptr;
  void (*widen_bf16)(const uint16_t* from, float* to, int64_t count) = nullptr;
  /// The two of each pair in the other order, a last one without a partner after a zero.
  void (*widen_swapped_bf16)(const uint16_t* from, float* to, int64_t count) = nullptr;
  /// Pairs of two lines' elements; `second` may be null for zeros.
  void (*interleave)(const uint16_t* first, const uint16_t* second, uint32_t* to, int64_t count) = nullptr;
  /// To the nearest, of two the even one; NaN becomes the quiet one without a payload.
  void (*narrow_f16)(const float* from, uint16_t* to, int64_t count) = nullptr;
  void (*narrow_bf16)(const float* from, uint16_t* to, int64_t count) = nullptr;
};

struct GemmFunctions {
  GemmFunction f32, f64;
  /// Sums in f32 over pairs of adjacent k, the second of a pair before the first, numbers below 2^-126 as zeros: what the
  /// instruction VDPBF16PS does. `elements` says of what: pairs where the processor has it, else f32 in the order of the sum.
  GemmFunction bf16;
  HalfLines half;
};

/// Those for an instruction set, which the processor must have.
const GemmFunctions& gemm_functions(InstructionSet set);
/// Those for the widest that it has.
const GemmFunctions& gemm_functions();
int64_t gemm_scratch_bytes();
int64_t gemm_pack_tasks(int64_t m, int64_t k, int64_t depth = kGemmDepth);
int64_t gemm_packed_bytes(int64_t m, int64_t k, int64_t element_bytes);
int64_t gemm_pack_b_tasks(int64_t n, int64_t k, int64_t depth = kGemmDepth);
int64_t gemm_packed_b_bytes(int64_t n, int64_t k, int64_t element_bytes);

}  // namespace gcomp::runtime::cpu
