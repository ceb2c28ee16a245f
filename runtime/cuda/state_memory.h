// The states of a model in a GPU's memory.
#pragma once

#include <vector>

#include "runtime/cuda/session.h"
#include "runtime/state_memory.h"

namespace gcomp::runtime::cuda {

/// Bytes from one state to the next: kernels move 16 bytes at once, matrix libraries like 256.
std::int64_t aligned_size(std::int64_t bytes);

class CudaStateMemory final : public StateMemory {
 public:
  explicit CudaStateMemory(SharedSession session) : session_(std::move(session)) {}

  /// Where the state lies, 256-byte aligned, for as long as this object lives.
  CUdeviceptr address(std::string_view name) const { return addresses_[find(name)]; }
  const SharedSession& session() const { return session_; }

 protected:
  void allocate(std::size_t first) override;
  void copy_from_device(std::size_t entry, std::span<std::byte> host) const override;
  void copy_to_device(std::size_t entry, std::span<const std::byte> host) override;

 private:
  SharedSession session_;
  std::vector<DeviceMemory> blocks_;  // one for each program that brought new states
  std::vector<CUdeviceptr> addresses_;
};

}  // namespace gcomp::runtime::cuda
