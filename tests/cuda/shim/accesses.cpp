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

Accesses::Byte* Accesses::bytes_at(std::uintptr_t address) {
  const std::uintptr_t number = address / kPageBytes;
  Recent& recent = recent_[number % kRecent];
  if (!recent.page || recent.number != number) {
    std::unique_ptr<Page>& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    recent = {number, page.get()};
  }
  return recent.page->bytes + address % kPageBytes;
}

/// Whether nothing orders one thread's access before another's now.
bool Accesses::conflicts(const Access& before, const Moment& now, bool shared) const {
  if (before.serial != serial_) return !shared && before.serial >= first_serial_;
  if (before.thread == now.thread || before.barriers != now.barriers) return false;
  return before.thread / kWarp != now.thread / kWarp || before.warp_barriers == now.warp_barriers;
}

bool Accesses::conflicts_with_reads(const Access& before, const Moment& now, bool shared) const {
  if (!shared && before.serial >= first_serial_ && before.readers == Readers::blocks) return true;
  if (before.serial != serial_ || before.barriers != now.barriers) return conflicts(before, now, shared);
  if (before.readers == Readers::warps) return true;
  if (before.readers == Readers::lanes)
    return before.thread / kWarp != now.thread / kWarp || before.warp_barriers == now.warp_barriers;
  return conflicts(before, now, shared);
}

void Accesses::note_read(Access& read, const Moment& now, bool shared) const {
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

std::string Accesses::add(const Moment& now, const void* address, std::size_t bytes, bool write, std::span<const char> shared) {
  const char* const first = static_cast<const char*>(address);
  const bool is_shared = first >= shared.data() && first < shared.data() + shared.size();
  for (std::size_t i = 0; i < bytes; ++i) {
    Byte& byte = *bytes_at(reinterpret_cast<std::uintptr_t>(first + i));
    const char* const does = write ? "writes" : "reads";
    if (conflicts(byte.write, now, is_shared)) return race(byte.write, "wrote", now, does, first + i, shared);
    if (!write) {
      note_read(byte.read, now, is_shared);
      continue;
    }
    if (conflicts_with_reads(byte.read, now, is_shared)) return race(byte.read, "read", now, does, first + i, shared);
    byte.write = {serial_, static_cast<std::uint16_t>(now.thread), now.barriers, now.warp_barriers, Readers::one};
  }
  return "";
}

}  // namespace gcomp::cuda_shim
