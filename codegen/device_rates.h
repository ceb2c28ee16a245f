// How fast a GPU can go at most, to judge a plan without one. The only place where such figures stand; `gcomp scale --rates` takes
// others.
#pragma once

#include <string_view>

#include "ir/base/dtype.h"

namespace gcomp::codegen {

struct DeviceRates {
  std::string_view name;
  double copy_bytes;           ///< a second, read and written together
  double f64, f32, f16, bf16;  ///< flops a second of products of this dtype; f32 without TF32
  double launch_seconds;       ///< that one node of a CUDA graph takes by itself

  double flops(DType dtype) const {
    switch (dtype) {
      case DType::f64: return f64;
      case DType::f16: return f16;
      case DType::bf16: return bf16;
      default: return f32;
    }
  }
};

/// Copy rate and bf16 as measured on one (large copy; 8192^3 product of random numbers, 769 to 798 TFLOP/s), f16 taken as bf16; f64
/// and f32 from NVIDIA's data sheet of the H200 SXM (34 and 67 TFLOP/s without tensor cores); a graph node as NVIDIA published
/// for the H100.
inline constexpr DeviceRates kH200{
    .name = "H200", .copy_bytes = 4.3e12, .f64 = 34e12, .f32 = 67e12, .f16 = 790e12, .bf16 = 790e12, .launch_seconds = 1.3e-6};

/// NVIDIA's GA102 white paper: 936 GB/s, of which a copy is taken to reach nine tenths, as that of an H200 does; 35.6 TFLOP/s in
/// f32, 71 in tensor cores that add in f32, f64 at 1/64 of f32. A graph node as of the H100: nobody has measured it.
inline constexpr DeviceRates kRtx3090{.name = "RTX 3090",
                                      .copy_bytes = 0.84e12,
                                      .f64 = 0.556e12,
                                      .f32 = 35.6e12,
                                      .f16 = 71e12,
                                      .bf16 = 71e12,
                                      .launch_seconds = 1.3e-6};

}  // namespace gcomp::codegen
