// The GPUs of a machine: what they are, which one is taken, and why one cannot be.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

struct Gpu {
  int ordinal = 0;  ///< among those that CUDA_VISIBLE_DEVICES leaves visible
  CUdevice device = 0;
  std::string name, uuid;
  int architecture = 0;  ///< 90 for compute capability 9.0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  CUcomputemode compute_mode = CU_COMPUTEMODE_DEFAULT;
  int shared_bytes = 0;  ///< the most that one block may use
  int cache_bytes = 0;   ///< of the second level, which all multiprocessors share
};

/// All visible GPUs, in the driver's order.
std::vector<Gpu> list_gpus(const Driver& driver);

/// "" where gcomp can use the GPU.
std::string why_unfit(const Gpu& gpu);

/// The GPU of this ordinal. Throws DeviceError (exit 6) listing the visible ones where there is none, or where it cannot be used.
Gpu choose_gpu(const Driver& driver, int ordinal, const char* visible_devices = nullptr);

/// "NVIDIA H200, sm_90, 139.8 GiB".
std::string describe(const Gpu& gpu);
std::string architecture_name(int architecture);

/// "1.5 GiB", "12.0 MiB".
std::string bytes_text(std::int64_t bytes);

}  // namespace gcomp::runtime::cuda
