// Matrix products and convolutions as generated CUDA kernels. One text serves every shape of a dtype and a direction of memory:
// what a shape needs (extents, strides, tiles, splits) is decided here and travels as the launch's parameters (parameters.h).
//
//   %y = matmul %a, %b : f32[768,3072], k = 32768    ->  k3, 24 x 6 tiles of 128 x 128 in 2 splits; k4 adds the splits
//
// Sums run in a fixed order: each split along k, then the splits in order. f16 and bf16 add in f32, on tensor cores where the
// architecture has them for the dtype.
#pragma once

#include "codegen/cuda/products/epilogue.h"
#include "codegen/kernel_table.h"

namespace gcomp::codegen::cuda {

/// A matmul's epilogue, and the buffers that its parameters stand for.
struct ProductEpilogue {
  EpilogueText text;
  std::vector<int> buffers;
};

/// The launches for a call; none where the call is outside of what the kernels take: more than four batch dimensions that do not
/// collapse, an extent of 2^31 or more, an image of 2^30 elements. `architecture` is that of the target: 90 for sm_90.
runtime::GeneratedProduct generate_product(const runtime::MatmulCall& call, int architecture, KernelTable& kernels,
                                           const ProductEpilogue* epilogue = nullptr);
runtime::GeneratedProduct generate_product(const runtime::ConvolutionCall& call, int architecture, KernelTable& kernels);
/// The same in TF32; none for other dtypes than f32, channels first, groups of few channels, and architectures before sm_80.
runtime::GeneratedProduct generate_tf32_product(const runtime::ConvolutionCall& call, int architecture, KernelTable& kernels);

/// What runtime::ConvolutionCall::packing is.
runtime::GeneratedProduct generate_packing(const runtime::ConvolutionCall& call, KernelTable& kernels);

}  // namespace gcomp::codegen::cuda
