#include "tests/cuda/shim/accesses.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp::cuda_shim {
namespace {

constexpr unsigned kWarp = 32;

}  // namespace

void Accesses::begin_launch() {
  first_serial_ = serial_ + 1;
  if (pages_.size() < kMostPages) return;
  pages_.clear();
  std::fill(std::begin(recent_), std::end(recent_), Recent{});
}

inline Accesses::Page& Accesses::page_of(std::uintptr_t address) {
  const std::uintptr_t number = address / kPageBytes;
  Recent& recent = recent_[number % kRecent];
  if (!recent.page || recent.number != number) {
    std::unique_ptr<Page>& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    recent = {number, page.get()};
  }
  return *recent.page;
}

/// Whether nothing orders one thread's access before another's now.
inline bool Accesses::conflicts(const Access& before, const Moment& now, bool shared) const {
  if (before.serial != serial_) return !shared && before.serial >= first_serial_;
  if (before.thread == now.thread || before.barriers != now.barriers) return false;
  return before.thread / kWarp != now.thread / kWarp || before.warp_barriers == now.warp_barriers;
}

inline bool Accesses::conflicts_with_reads(const Access& before, const Moment& now, bool shared) const {
  if (!shared && before.serial >= first_serial_ && before.readers == Readers::blocks) return true;
  if (before.serial != serial_ || before.barriers != now.barriers) return conflicts(before, now, shared);
  if (before.readers == Readers::warps) return true;
  if (before.readers == Readers::lanes)
    return before.thread / kWarp != now.thread / kWarp || before.warp_barriers == now.warp_barriers;
  return conflicts(before, now, shared);
}

inline void Accesses::note_read(Access& read, const Moment& now, bool shared) const {
  Readers readers = Readers::one;
  if (!shared && read.serial >= first_serial_ && (read.serial != serial_ || read.readers == Readers::blocks)) {
    read.readers = Readers::blocks;  // the other one stays, whom any write from now on meets
    return;
  }
  if (read.serial == serial_ && read.barriers == now.barriers) {
    if (read.readers == Readers::warps || read.thread / kWarp != now.thread / kWarp) readers = Readers::warps;
    else if (read.warp_barriers == now.warp_barriers && (read.readers == Readers::lanes || read.thread != now.thread))
      readers = Readers::lanes;
  }
  read = {serial_, static_cast<std::uint16_t>(now.thread), now.barriers, now.warp_barriers, readers};
}

std::string Accesses::race(const Access& before, const char* did, const Moment& now, const char* does, const void* address,
                           std::span<const char> shared) const {
  const char* const byte = static_cast<const char*>(address);
  const std::string where = byte >= shared.data() && byte < shared.data() + shared.size()
                                ? concat("byte ", byte - shared.data(), " of shared memory")
                                : concat("global memory at ", address);
  return concat("a race: thread ", now.thread, " ", does, " ", where, ", which ",
                before.serial == serial_ ? concat("thread ", before.thread) : concat("another block's thread ", before.thread), " ",
                did, ", and no barrier stands between");
}

/// The access before that nothing orders before this one; null where there is none, and this is the last.
inline const Accesses::Access* Accesses::add(Last& last, const Moment& now, bool write, bool shared) const {
  if (conflicts(last.write, now, shared)) return &last.write;
  if (!write) {
    note_read(last.read, now, shared);
    return nullptr;
  }
  if (conflicts_with_reads(last.read, now, shared)) return &last.read;
  last.write = {serial_, static_cast<std::uint16_t>(now.thread), now.barriers, now.warp_barriers, Readers::one};
  return nullptr;
}

std::string Accesses::add(const Moment& now, const void* address, std::size_t bytes, bool write, std::span<const char> shared) {
  const char* const first = static_cast<const char*>(address);
  const bool is_shared = first >= shared.data() && first < shared.data() + shared.size();
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
  for (std::uintptr_t at = begin; at < end;) {
    Page& page = page_of(at);
    const std::uintptr_t page_end = std::min(end, (at / kPageBytes + 1) * kPageBytes);
    while (at < page_end) {
      Word& word = page.words[at % kPageBytes / kWordBytes];
      const bool whole = at % kWordBytes == 0 && page_end - at >= kWordBytes;
      if (!whole && !word.bytes) {
        word.bytes = std::make_unique<Last[]>(kWordBytes);
        std::fill_n(word.bytes.get(), kWordBytes, word.last);
      }
      const bool together = !word.bytes;
      Last& last = together ? word.last : word.bytes[at % kWordBytes];
      if (const Access* before = add(last, now, write, is_shared))
        return race(*before, before == &last.write ? "wrote" : "read", now, write ? "writes" : "reads", first + (at - begin),
                    shared);
      at += together ? kWordBytes : 1;
    }
  }
  return "";
}

}  // namespace gcomp::cuda_shim
