// Generated CUDA text as a host library: compiled behind device.h by the host's C++ compiler, and loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/shim/emulator.h"

namespace gcomp::cuda_shim {

class HostModule {
 public:
  /// Compiles definitions of kernels of the given names. Throws InternalError with the compiler's log where it refuses.
  HostModule(const std::string& text, const std::vector<std::string>& kernels);
  ~HostModule();
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;

  Function function(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  void* handle_ = nullptr;
};

}  // namespace gcomp::cuda_shim
