// Who touched which byte last, and whether CUDA orders it: what two threads of a launch do to one byte, one of them writing, is a
// race unless a barrier of their block, or of their warp, stands between. Blocks of one launch are never ordered. That the emulator
// runs threads one by one hides no race from this, since it looks at what orders them and not at who came first.
//
// Taken for more than it is: nothing. Shuffles, votes and the tensor cores' instructions order no memory, as CUDA's manual says.
// Taken for less: a warp barrier of some lanes only (no kernel has one). Missed: all but the last write of a byte, and of its reads
// since then those that the last barrier orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

namespace gcomp::cuda_shim {

/// A thread of a block at some time: its block's barriers and its warp's so far.
struct Moment {
  unsigned thread = 0;
  std::uint16_t barriers = 0, warp_barriers = 0;
};

class Accesses {
 public:
  /// What earlier launches did is behind us.
  void begin_launch();
  void begin_block() { ++serial_; }

  /// An access of the block that began last; "" or the race that it is part of, in words. `shared` is the block's own memory: what
  /// another block has there is other memory.
  std::string add(const Moment& now, const void* address, std::size_t bytes, bool write, std::span<const char> shared);

 private:
  /// Who reads, of the threads that no barrier has ordered since.
  enum class Readers : std::uint8_t { one, lanes, warps, blocks };
  struct Access {
    std::uint32_t serial = 0;  ///< of the block; 0 for none
    std::uint16_t thread = 0, barriers = 0, warp_barriers = 0;
    Readers readers = Readers::one;
  };
  struct Last {
    Access write, read;
  };
  static constexpr std::size_t kPageBytes = 4096, kMostPages = 1 << 14, kRecent = 256, kWordBytes = 4;
  /// Who touched all bytes of a word, or, once something touched some of them alone, each.
  struct Word {
    Last last;
    std::unique_ptr<Last[]> bytes;
  };
  struct Page {
    Word words[kPageBytes / kWordBytes];
  };

  Page& page_of(std::uintptr_t address);
  const Access* add(Last& last, const Moment& now, bool write, bool shared) const;
  bool conflicts(const Access& before, const Moment& now, bool shared) const;
  bool conflicts_with_reads(const Access& before, const Moment& now, bool shared) const;
  void note_read(Access& read, const Moment& now, bool shared) const;
  std::string race(const Access& before, const char* did, const Moment& now, const char* does, const void* address,
                   std::span<const char> shared) const;

  std::uint32_t serial_ = 0, first_serial_ = 1;  // of blocks over all launches, and of the launch's first
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    std::uintptr_t number = 0;
    Page* page = nullptr;
  } recent_[kRecent];
};

}  // namespace gcomp::cuda_shim
