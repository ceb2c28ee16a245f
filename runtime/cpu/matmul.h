// Matrix products of a program on the CPU. f32 and f64 go to the built-in kernel of gemm.h, f16 and bf16 to the same by way of f32,
// integers to plain loops.
#pragma once

#include <memory>

#include "runtime/cpu/gemm.h"
#include "runtime/cpu/library_call.h"
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
std::unique_ptr<LibraryCall> make_builtin_matmul(const MatmulCall& call, const MatmulOperands& operands);    ///< f32, f64
std::unique_ptr<LibraryCall> make_converted_matmul(const MatmulCall& call, const MatmulOperands& operands);  ///< f16, bf16
std::unique_ptr<LibraryCall> make_integer_matmul(const MatmulCall& call, const MatmulOperands& operands);

}  // namespace gcomp::runtime::cpu
