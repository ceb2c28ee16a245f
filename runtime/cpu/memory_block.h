// Zero-filled memory of the host, aligned for vectors, in large pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gcomp::runtime::cpu {

class MemoryBlock {
 public:
  MemoryBlock() = default;
  /// Touches every page, so that no later access faults. Throws DeviceError (exit 7) naming `purpose` where there is too little.
  MemoryBlock(std::int64_t bytes, std::string_view purpose);
  ~MemoryBlock();
  MemoryBlock(MemoryBlock&& other) noexcept;
  MemoryBlock& operator=(MemoryBlock&& other) noexcept;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace gcomp::runtime::cpu
