#pragma once

#include <memory>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/gpu.h"
#include "runtime/device.h"

namespace gcomp::runtime::cuda {

/// The driver and the GPU that the options name. Throws DeviceError (exit 6) with the reason and its cure.
struct FoundGpu {
  std::shared_ptr<const Driver> driver;
  Gpu gpu;
};
FoundGpu find_gpu(const DeviceOptions& options);

/// Throws as find_gpu() does, and where no NVRTC fits driver and GPU.
void require_cuda(const DeviceOptions& options);

/// Throws as find_gpu() does.
std::unique_ptr<Device> open_cuda_device(const DeviceOptions& options);

}  // namespace gcomp::runtime::cuda
