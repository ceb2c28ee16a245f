// Convolutions of a program on the CPU, and their two gradients. f32 of one group, channels last, goes to kernels of our own
// (convolution_blocked.h) or, where these are not known to be faster, to oneDNN; f32 of other forms to oneDNN; f64
// (and the few f32 shapes that oneDNN has no fast form for) to im2col and the built-in matrix product. Work is cut by shape alone
// and partial weight gradients are added in a fixed order, so the bits do not depend on the number of threads.
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
/// f32. nullptr where oneDNN has only its slow reference form for the call.
std::unique_ptr<LibraryCall> make_onednn_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
