#include "runtime/cpu/memory_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kLargePage = std::int64_t{2} << 20;

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Linux promises more memory than there is and kills who uses it; so ask what there is first.
bool exceeds_available(std::int64_t bytes) {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 && bytes / page > pages;
}

}  // namespace

MemoryBlock::MemoryBlock(std::int64_t bytes, std::string_view purpose) : bytes_(bytes) {
  if (bytes <= 0) return;
  const std::int64_t alignment = bytes >= kLargePage ? kLargePage : 64;
  const std::int64_t size = (bytes + alignment - 1) / alignment * alignment;
  void* data = nullptr;
  if (exceeds_available(size) || posix_memalign(&data, static_cast<std::size_t>(alignment), static_cast<std::size_t>(size)) != 0)
    throw DeviceError(concat("out of memory: ", purpose, " needs ", mebibytes(bytes), " MiB; a smaller batch needs less"),
                      ExitCode::out_of_memory);
  if (bytes >= kLargePage) madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  std::memset(data, 0, static_cast<std::size_t>(size));
  data_ = static_cast<std::byte*>(data);
}

MemoryBlock::~MemoryBlock() { std::free(data_); }

MemoryBlock::MemoryBlock(MemoryBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBlock& MemoryBlock::operator=(MemoryBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace gcomp::runtime::cpu
