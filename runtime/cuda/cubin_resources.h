// What a cubin says that its kernel takes of a multiprocessor.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gcomp::runtime::cuda {

struct CubinResources {
  int registers = 0;     ///< of a thread
  int shared_bytes = 0;  ///< of a block: its static arrays and the KiB that the system reserves; 0 where it has none
};

/// Of the one kernel in a cubin that NVRTC made. Throws DeviceError (exit 5) where the bytes are no such file.
CubinResources resources_of_cubin(std::span<const std::byte> image);

}  // namespace gcomp::runtime::cuda
