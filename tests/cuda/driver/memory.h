// The memory of an emulated GPU: host memory between guard zones, poisoned when it is given out and when it is given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace gcomp::emulated {

/// Pages of its own: a guard zone on both sides, and behind those pages that nothing may touch.
class Block {
 public:
  Block(std::size_t bytes, std::byte poison);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// Which side was written over, or "".
  std::string damage() const;

 private:
  std::byte *pages_ = nullptr, *data_ = nullptr, *guards_ = nullptr, *guards_end_ = nullptr;
  std::size_t bytes_ = 0, mapped_ = 0;
  std::byte poison_;
};

class Memory {
 public:
  /// Bytes of the default poison are a NaN in every float type.
  Memory(std::uint64_t limit, std::byte poison) : limit_(limit), poison_(poison) {}

  /// Null where the limit does not allow it.
  std::byte* allocate(std::size_t bytes);
  /// False for an address that was not allocated; `damage` as Block::damage.
  bool release(const void* address, std::string& damage);

  /// The block that holds the address, which may also be its end; null for none.
  const Block* block_of(const void* address) const;
  /// Whether a live block holds all the bytes.
  bool holds(const void* address, std::size_t bytes) const;
  /// Of the first damaged block, or "".
  std::string damage() const;

  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const { return used_; }
  std::uint64_t peak() const { return peak_; }
  std::size_t blocks() const { return blocks_.size(); }
  const std::map<const std::byte*, std::unique_ptr<Block>>& all() const { return blocks_; }

 private:
  std::uint64_t limit_, used_ = 0, peak_ = 0;
  std::byte poison_;
  std::map<const std::byte*, std::unique_ptr<Block>> blocks_;
};

}  // namespace gcomp::emulated
