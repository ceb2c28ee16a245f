// The states of a model in host memory.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/cpu/beside_thread.h"
#include "runtime/cpu/memory_block.h"
#include "runtime/state_memory.h"

namespace gcomp::runtime::cpu {

class CpuStateMemory final : public StateMemory {
 public:
  /// Programs that run on that thread are done before a state is read or written here.
  explicit CpuStateMemory(std::shared_ptr<BesideThread> beside) : beside_(std::move(beside)) {}

  /// Where the state lies, 64-byte aligned, for as long as this object lives.
  std::byte* address(std::string_view name) const { return addresses_[find(name)]; }

 protected:
  void allocate(std::size_t first) override;
  void copy_from_device(std::size_t entry, std::span<std::byte> host) const override;
  void copy_to_device(std::size_t entry, std::span<const std::byte> host) override;

 private:
  std::shared_ptr<BesideThread> beside_;
  std::vector<MemoryBlock> blocks_;  // one for each program that brought new states
  std::vector<std::byte*> addresses_;
};

}  // namespace gcomp::runtime::cpu
