// Matrix products of a program on the CPU. f32, f64 and bf16 go to the built-in kernel of gemm.h, bf16 to the tiles of amx.h
// where there are any, f16 to gemm.h's by way of f32, integers to plain loops.
#pragma once

#include <memory>

#include "runtime/cpu/gemm.h"
#include "runtime/cpu/library_call.h"
#include "runtime/cpu/matrix_stack.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

/// Start of the buffers of a call's three views; the views' offsets come on top. `gemm` multiplies what the built-in kernel takes.
struct MatmulOperands {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  CallBackend backend = {};
};

/// Throws InternalError where the call is malformed.
std::unique_ptr<LibraryCall> make_matmul(const MatmulCall& call, const MatmulOperands& operands);

// The ways to run one, for tests and measurements; make_matmul chooses by dtype and shape alone.
std::unique_ptr<LibraryCall> make_builtin_matmul(const MatmulCall& call, const MatmulOperands& operands);  ///< f32, f64
std::unique_ptr<LibraryCall> make_half_matmul(const MatmulCall& call, const MatmulOperands& operands);     ///< f16, bf16
std::unique_ptr<LibraryCall> make_tile_matmul(const MatmulCall& call, const MatmulOperands& operands);     ///< bf16, tiles
std::unique_ptr<LibraryCall> make_integer_matmul(const MatmulCall& call, const MatmulOperands& operands);

/// Products of one kernel: a is m x k, b is k x n, and k counts its steps.
struct ProductSize {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t step_bytes = 0;  ///< of an operand in a step, and of an element of C
};
std::unique_ptr<LibraryCall> make_builtin_matmul(const ProductSize& size, const GemmFunction& gemm, MatrixStack a, MatrixStack b,
                                                 MatrixStack c);

}  // namespace gcomp::runtime::cpu
