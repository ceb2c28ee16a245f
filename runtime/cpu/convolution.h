// Convolutions of a program on the CPU, and their two gradients. f32, channels last, goes to the blocked kernels
// (convolution_blocked.h), to those of one channel a group (convolution_depthwise.h), or to the matrix product; f64, and what has
// its channels first, to im2col and the matrix product. Work is cut by shape alone and partial weight gradients are added in a
// fixed order, so the bits do not depend on the number of threads.
#pragma once

#include <memory>

#include "runtime/cpu/gemm.h"
#include "runtime/cpu/library_call.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

/// Start of each buffer; `gemm` multiplies what is unfolded.
struct ConvolutionOperands {
  std::byte* input = nullptr;
  std::byte* weight = nullptr;
  std::byte* output = nullptr;
  CallBackend backend = {};
};

/// Throws InternalError where the call's extents do not fit together.
std::unique_ptr<LibraryCall> make_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

// The ways to run one, for tests and measurements; make_convolution chooses by dtype and shape alone.
std::unique_ptr<LibraryCall> make_unfolded_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
