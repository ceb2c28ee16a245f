// How fast a GPU can go at most, and what holds a kernel below that, to judge a plan without one. The only place where such figures
// stand; `gcomp scale --rates` takes others for the first of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/base/dtype.h"

namespace gcomp::codegen {

/// What one multiprocessor holds at once; CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
struct MultiprocessorLimits {
  std::int32_t threads = 0, blocks = 0, registers = 0, shared_bytes = 0;
};

/// The first six bound any implementation: they make a plan's floor. The others say what a kernel as it is written can draw of
/// them.
struct DeviceRates {
  std::string_view name;
  double copy_bytes;           ///< a second, read and written together
  double f64, f32, f16, bf16;  ///< flops a second of products of this dtype; f32 without TF32
  double launch_seconds;       ///< that one node of a CUDA graph takes by itself

  double tf32 = 0;               ///< flops a second of f32 products whose operands are rounded to TF32
  double mma_share = 1;          ///< of the tensor cores' rate that warp-wide instructions (mma.sync) reach
  double kernel_share = 1;       ///< of the copy rate that kernels of loads and stores draw
  double product_share = 1;      ///< of the rate of a large product that the library's draw, beside what tiles and waves leave
  double tf32_across_share = 1;  ///< of that, where sums go across the first operand's rows, as a weight gradient's do
  double convolution_share = 0;  ///< the same for the library's convolutions; 0 where generated kernels are counted
  double attention_share = 0;    ///< the same for its attention in 16 bits
  double epilogue_share = 1;     ///< of the copy rate at which the library reads an operand for an epilogue's sake
  double clock = 0;              ///< cycles a second under load
  double issue_share = 0;        ///< of the issue slots (4 warps a cycle and multiprocessor) that a loop without stalls fills
  double l2_bytes = 0;           ///< a second from the second cache to the multiprocessors
  double l2_capacity = 0;        ///< bytes of it that a kernel finds again
  double load_seconds = 0;       ///< from a load to its value while memory is busy
  double l2_seconds = 0;         ///< the same, where the second cache has it
  std::int64_t multiprocessors = 0;
  MultiprocessorLimits limits = {};

  double flops(DType dtype) const {
    switch (dtype) {
      case DType::f64: return f64;
      case DType::f16: return f16;
      case DType::bf16: return bf16;
      default: return f32;
    }
  }
};

/// Copy rate, bf16 and TF32 as measured on one (large copy; 8192^3 products of random numbers, bf16 769 to 798 TFLOP/s), f16 taken
/// as bf16 (752 measured); f64 and f32 from NVIDIA's data sheet of the H200 SXM (34 and 67 TFLOP/s without tensor cores, of which a
/// product in f32 reached 51); a graph node as NVIDIA published for the H100.
/// Measured in steps of GPT-2, BERT-base, ViT-B/16 and ResNet-50 in bf16 (bench/results/h200-2026-11-26), which therefore no longer
/// judge the estimate; other networks do:
///   kernel_share       0.87 to 0.92 of what bytes alone let kernels take, in each of the four
///   product_share      0.94 to 0.81; the clock falls in a step of products
///   tf32_across_share  GPT-2's weight gradients in TF32: 752, 201, 602 and 10,959 us for 416, 114, 315 and 6,610 (h200-2026-11-28)
///   convolution_share  ResNet-50's by cuDNN: 3.6, 3.2 and 2.2 ms forward, to the weight and to the input, 1.1 TFLOP each
///   attention_share    cuDNN's forward: 294, 342 and 160 TFLOP/s of 64 elements a head over 1024 (causal), 512 and 197 positions
///   epilogue_share     what BGRAD and DGELU_AUX add to a product: 84 us for 151 MB, 37 for 50, 108 for 201
/// What was not measured here:
///   mma_share     62.9 % of the data sheet's rate, by Luo et al. 2025 (arXiv 2501.12084) for mma.sync on an H100: 622 of
///                 the 790 that the library reaches through wgmma
///   clock         at which 132 multiprocessors of 4,096 flops a cycle give the data sheet's 989 TFLOP/s
///   issue_share   taken: below the 0.85 of a good f32 product in FMA, since memory-bound loops wait more
///   l2_bytes      the lower end of what Chips and Cheese measured on an H100 (2023)
///   l2_capacity   half of 50 MB: the other half serves the other partition's multiprocessors, and lines stay in both
///   load_seconds  at which 32 KiB of loads in flight on each multiprocessor, NVIDIA's advice for the H100, make the copy rate
///   l2_seconds    twice the 270 cycles that Chips and Cheese measured at rest, for the wait in line
inline constexpr DeviceRates kH200{.name = "H200",
                                   .copy_bytes = 4.3e12,
                                   .f64 = 34e12,
                                   .f32 = 67e12,
                                   .f16 = 790e12,
                                   .bf16 = 790e12,
                                   .launch_seconds = 1.3e-6,
                                   .tf32 = 407e12,
                                   .mma_share = 0.787,
                                   .kernel_share = 0.9,
                                   .product_share = 0.9,
                                   .tf32_across_share = 0.55,
                                   .convolution_share = 0.5,
                                   .attention_share = 0.45,
                                   .epilogue_share = 0.5,
                                   .clock = 1.83e9,
                                   .issue_share = 0.75,
                                   .l2_bytes = 5.5e12,
                                   .l2_capacity = 25e6,
                                   .load_seconds = 1e-6,
                                   .l2_seconds = 0.3e-6,
                                   .multiprocessors = 132,
                                   .limits = {.threads = 2048, .blocks = 32, .registers = 65536, .shared_bytes = 228 << 10}};

/// NVIDIA's GA102 white paper: 936 GB/s, of which a copy is taken to reach nine tenths, as that of an H200 does; 35.6 TFLOP/s in
/// f32 and in TF32, 71 in tensor cores that add in f32, f64 at 1/64 of f32; 82 multiprocessors at 1.695 GHz, 6 MB of second cache.
/// A graph node and the wait for a load as of the H200, the second cache at its ratio to the copy rate: nobody has measured them.
inline constexpr DeviceRates kRtx3090{.name = "RTX 3090",
                                      .copy_bytes = 0.84e12,
                                      .f64 = 0.556e12,
                                      .f32 = 35.6e12,
                                      .f16 = 71e12,
                                      .bf16 = 71e12,
                                      .launch_seconds = 1.3e-6,
                                      .tf32 = 35.6e12,
                                      .mma_share = 1,
                                      .clock = 1.695e9,
                                      .issue_share = 0.75,
                                      .l2_bytes = 1.07e12,
                                      .l2_capacity = 3e6,
                                      .load_seconds = 1e-6,
                                      .l2_seconds = 0.3e-6,
                                      .multiprocessors = 82,
                                      .limits = {.threads = 1536, .blocks = 16, .registers = 65536, .shared_bytes = 100 << 10}};

}  // namespace gcomp::codegen
