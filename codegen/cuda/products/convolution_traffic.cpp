#include "codegen/cuda/products/convolution_traffic.h"

#include <algorithm>

#include "codegen/cuda/products/instructions.h"

namespace gcomp::codegen::cuda {
namespace {

Traffic launch_traffic(const runtime::ConvolutionCall& call, int threads, double flops, bool tf32) {
  constexpr double kWarp = 32;
  Traffic traffic;
  // Each step along k is loaded while the one before is computed, into registers: one wait for each.
  const double side = convolution_tile(threads);
  traffic.cache_waits = flops / (2 * side * side * kConvolutionStep) * threads;
  if (!tf32 && !uses_tensor_cores(call.dtype)) {
    traffic.instructions = flops / 2 * kInstructionsAnFma;
    return traffic;
  }
  // An instruction of TF32 takes half of k, and so do the loads for it.
  const double mma_flops = tf32 ? kMmaFlops / 2 : kMmaFlops;
  traffic.mma_flops = flops;
  traffic.instructions = flops / mma_flops * kWarp * convolution_instructions(call.kind, threads);
  return traffic;
}

}  // namespace

std::vector<Traffic> convolution_traffic(const runtime::ConvolutionCall& call, const runtime::GeneratedProduct& generated,
                                         double flops, bool tf32) {
  double blocks = 0;
  for (const runtime::ProductLaunch& launch : generated.launches) blocks += static_cast<double>(launch.grid.blocks);
  std::vector<Traffic> made;
  for (const runtime::ProductLaunch& launch : generated.launches) {
    const double share = static_cast<double>(launch.grid.blocks) / std::max(blocks, 1.0);
    made.push_back(launch_traffic(call, launch.grid.threads, flops * share, tf32));
  }
  return made;
}

}  // namespace gcomp::codegen::cuda
