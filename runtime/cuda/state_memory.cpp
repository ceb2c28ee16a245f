#include "runtime/cuda/state_memory.h"

namespace gcomp::runtime::cuda {

std::int64_t aligned_size(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

void CudaStateMemory::allocate(std::size_t first) {
  std::int64_t total = 0;
  for (const StateEntry& entry : entries().subspan(first)) total += aligned_size(entry.type.bytes());
  const DeviceMemory& block = blocks_.emplace_back(session_->context, total, "the model's state (parameters, optimizer)");
  if (total > 0) {
    const CUstream stream = session_->compute.get();
    GCOMP_CUDA(session_->driver(), "states", cuMemsetD8Async, block.address(), 0, static_cast<std::size_t>(total), stream);
  }
  CUdeviceptr next = block.address();
  for (const StateEntry& entry : entries().subspan(first)) {
    addresses_.push_back(next);
    next += static_cast<CUdeviceptr>(aligned_size(entry.type.bytes()));
  }
}

void CudaStateMemory::copy_from_device(std::size_t entry, std::span<std::byte> host) const {
  if (host.empty()) return;
  const std::string& name = entries()[entry].name;
  const CUstream stream = session_->compute.get();
  session_->context->make_current();
  follow_beside(*session_, name);
  if (session_->nccl) wait_for_stream(*session_, stream, name);  // the copy to pageable memory would wait without looking
  GCOMP_CUDA(session_->driver(), name, cuMemcpyDtoHAsync_v2, host.data(), addresses_[entry], host.size(), stream);
  GCOMP_CUDA(session_->driver(), name, cuStreamSynchronize, stream);
}

void CudaStateMemory::copy_to_device(std::size_t entry, std::span<const std::byte> host) {
  if (host.empty()) return;
  const std::string& name = entries()[entry].name;
  const CUstream stream = session_->compute.get();
  session_->context->make_current();
  follow_beside(*session_, name);
  if (session_->nccl) wait_for_stream(*session_, stream, name);
  GCOMP_CUDA(session_->driver(), name, cuMemcpyHtoDAsync_v2, addresses_[entry], host.data(), host.size(), stream);
  GCOMP_CUDA(session_->driver(), name, cuStreamSynchronize, stream);
}

}  // namespace gcomp::runtime::cuda
