// Which GPU each of several ranks has taken, and whether together they can train to the same bits.
#pragma once

#include <string>

#include "gcomp/communicator.h"
#include "runtime/cuda/gpu.h"

namespace gcomp::runtime::cuda {

/// What one rank computes with.
struct RankGpu {
  Gpu gpu;
  std::string nccl, cublaslt, cudnn;  ///< versions
  bool asked = false;                 ///< the GPU was asked for by its number
};

/// All ranks call it at the same time. Throws the same DeviceError (exit 6) on all where two have taken one GPU, or where GPUs or
/// libraries differ in what decides the bits.
void require_fitting_gpus(Communicator& ranks, const RankGpu& own);

}  // namespace gcomp::runtime::cuda
