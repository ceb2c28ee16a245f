#include "runtime/cuda/cubin_resources.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ir/base/error.h"

namespace gcomp::runtime::cuda {
namespace {

using Bytes = std::span<const std::byte>;

Bytes part_of(Bytes image, std::size_t offset, std::size_t size) {
  if (offset > image.size() || size > image.size() - offset) throw DeviceError("a cubin ends before what it lists");
  return image.subspan(offset, size);
}

template <class T>
T read_at(Bytes image, std::size_t offset) {
  T value;
  std::memcpy(&value, part_of(image, offset, sizeof value).data(), sizeof value);
  return value;
}

std::string_view name_at(Bytes image, const Elf64_Shdr& names, std::size_t offset) {
  const Bytes text = part_of(image, names.sh_offset, names.sh_size);
  if (offset >= text.size()) throw DeviceError("a cubin's section has no name");
  const auto* begin = reinterpret_cast<const char*>(text.data()) + offset;
  return {begin, strnlen(begin, text.size() - offset)};
}

/// The count of registers among the attributes of `.nv.info`: each has a format, a number and, in the format of sized values, a
/// length; that of registers holds a symbol and the count.
int registers_in(Bytes info) {
  constexpr std::uint8_t kSized = 4, kRegisters = 0x2f;
  for (std::size_t at = 0; at + 4 <= info.size();) {
    const auto format = static_cast<std::uint8_t>(info[at]), number = static_cast<std::uint8_t>(info[at + 1]);
    const auto length = read_at<std::uint16_t>(info, at + 2);
    at += 4;
    if (format != kSized) continue;  // the two bytes are the value
    if (number == kRegisters && length >= 8) return read_at<std::int32_t>(info, at + 4);
    at += length;
  }
  return 0;
}

}  // namespace

CubinResources resources_of_cubin(Bytes image) {
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum)
    throw DeviceError("a cubin is no ELF file of 64 bits");
  const auto section = [&](std::size_t i) { return read_at<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr)); };
  const Elf64_Shdr names = section(header.e_shstrndx);
  CubinResources found;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    const std::string_view name = name_at(image, names, s.sh_name);
    if (name == ".nv.info") found.registers = registers_in(part_of(image, s.sh_offset, s.sh_size));
    // A section of shared memory has a size and no bytes; the one that is reserved is the system's.
    if (name.starts_with(".nv.shared.") && !name.starts_with(".nv.shared.reserved"))
      found.shared_bytes = std::max(found.shared_bytes, static_cast<int>(s.sh_size));
  }
  if (found.registers == 0) throw DeviceError("a cubin says of no kernel how many registers it has");
  return found;
}

}  // namespace gcomp::runtime::cuda
