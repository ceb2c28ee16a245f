// The CPU as a device: one pool of threads and one compiler for all programs loaded on it.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace gcomp::runtime::cpu {

std::unique_ptr<Device> open_cpu_device(const DeviceOptions& options);

}  // namespace gcomp::runtime::cpu
