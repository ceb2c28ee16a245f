#include "tests/cuda/driver/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "ir/base/error.h"

namespace gcomp::emulated {
namespace {

constexpr std::size_t kPage = 4096, kAlignment = 512, kGuard = 512;
constexpr std::byte kGuardByte{0xa7};

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Block::Block(std::size_t bytes, std::byte poison) : bytes_(bytes), poison_(poison) {
  const std::size_t usable = round_up(kGuard + bytes + kGuard, kPage);
  mapped_ = usable + 2 * kPage;
  void* pages = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<std::byte*>(pages);
  guards_ = pages_ + kPage;
  guards_end_ = guards_ + usable;
  if (mprotect(guards_, usable, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  data_ = guards_ + kGuard;
  std::memset(guards_, static_cast<int>(kGuardByte), kGuard);
  std::memset(data_, static_cast<int>(poison), bytes);
  std::memset(data_ + bytes, static_cast<int>(kGuardByte), static_cast<std::size_t>(guards_end_ - data_) - bytes);
}

Block::~Block() {
  std::memset(data_, static_cast<int>(poison_), bytes_);
  munmap(pages_, mapped_);
}

std::string Block::damage() const {
  const auto intact = [](const std::byte* from, const std::byte* to) {
    return std::all_of(from, to, [](std::byte b) { return b == kGuardByte; });
  };
  const char* side = !intact(guards_, data_) ? "before" : !intact(data_ + bytes_, guards_end_) ? "behind" : nullptr;
  return side ? concat("memory ", side, " an allocation of ", bytes_, " bytes was written") : "";
}

std::byte* Memory::allocate(std::size_t bytes) {
  const std::size_t taken = round_up(bytes, kAlignment);
  if (used_ + taken > limit_) return nullptr;
  auto block = std::make_unique<Block>(bytes, poison_);
  std::byte* address = block->data();
  blocks_.emplace(address, std::move(block));
  used_ += taken;
  peak_ = std::max(peak_, used_);
  return address;
}

bool Memory::release(const void* address, std::string& damage) {
  const auto it = blocks_.find(static_cast<const std::byte*>(address));
  if (it == blocks_.end()) return false;
  damage = it->second->damage();
  used_ -= round_up(it->second->bytes(), kAlignment);
  blocks_.erase(it);
  return true;
}

const Block* Memory::block_of(const void* address) const {
  const std::byte* at = static_cast<const std::byte*>(address);
  auto it = blocks_.upper_bound(at);
  if (it == blocks_.begin()) return nullptr;
  --it;
  return at <= it->first + it->second->bytes() ? it->second.get() : nullptr;
}

bool Memory::holds(const void* address, std::size_t bytes) const {
  const Block* block = block_of(address);
  return block && static_cast<const std::byte*>(address) + bytes <= block->data() + block->bytes();
}

std::string Memory::damage() const {
  for (const auto& [address, block] : blocks_)
    if (std::string damage = block->damage(); !damage.empty()) return damage;
  return "";
}

}  // namespace gcomp::emulated
