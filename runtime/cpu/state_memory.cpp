#include "runtime/cpu/state_memory.h"

#include <algorithm>

#include "runtime/cpu/library_call.h"

namespace gcomp::runtime::cpu {

void CpuStateMemory::allocate(std::size_t first) {
  std::int64_t total = 0;
  for (const StateEntry& entry : entries().subspan(first)) total += aligned_size(entry.type.bytes());
  std::byte* next = blocks_.emplace_back(total, "the model's state (parameters, optimizer)").data();
  for (const StateEntry& entry : entries().subspan(first)) {
    addresses_.push_back(next);
    if (next) next += aligned_size(entry.type.bytes());
  }
}

void CpuStateMemory::copy_from_device(std::size_t entry, std::span<std::byte> host) const {
  beside_->wait_for_all();
  std::copy_n(addresses_[entry], host.size(), host.data());
}

void CpuStateMemory::copy_to_device(std::size_t entry, std::span<const std::byte> host) {
  beside_->wait_for_all();
  std::copy_n(host.data(), host.size(), addresses_[entry]);
}

}  // namespace gcomp::runtime::cpu
