#include "runtime/cpu/elf.h"

#include <elf.h>

#include <bit>
#include <cstring>
#include <vector>

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_NONE;
#endif

/// Whether [offset, offset + size) lies within the object.
bool lies_within(std::span<const std::byte> object, std::uint64_t offset, std::uint64_t size) {
  return offset <= object.size() && size <= object.size() - offset;
}

template <class T>
std::optional<T> read_at(std::span<const std::byte> object, std::uint64_t offset) {
  if (!lies_within(object, offset, sizeof(T))) return std::nullopt;
  T value;
  std::memcpy(&value, object.data() + offset, sizeof value);
  return value;
}

/// `count` entries of a table; nothing where it does not lie within the object.
template <class T>
std::optional<std::vector<T>> read_table(std::span<const std::byte> object, std::uint64_t offset, std::uint64_t count) {
  if (count > object.size() / sizeof(T) || !lies_within(object, offset, count * sizeof(T))) return std::nullopt;
  std::vector<T> table(count);
  if (count > 0) std::memcpy(table.data(), object.data() + offset, count * sizeof(T));
  return table;
}

/// The text at `offset` up to its zero.
std::optional<std::string> text_at(std::span<const std::byte> object, std::uint64_t offset) {
  if (offset >= object.size()) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(object.data() + offset);
  const void* end = std::memchr(begin, 0, object.size() - offset);
  if (!end) return std::nullopt;
  return std::string(begin, static_cast<const char*>(end));
}

/// Where the byte of this address lies in the file.
std::optional<std::uint64_t> file_offset(const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return std::nullopt;
}

}  // namespace

std::string why_no_shared_object(std::span<const std::byte> object) {
  const auto header = read_at<Elf64_Ehdr>(object, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return "they are no ELF object";
  constexpr unsigned char kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != kOrder || header->e_machine != kMachine ||
      header->e_type != ET_DYN)
    return "they are no shared object for this kind of processor";
  const auto segments = read_table<Elf64_Phdr>(object, header->e_phoff, header->e_phnum);
  if (!segments || header->e_phentsize != sizeof(Elf64_Phdr)) return "they are cut short";
  for (const Elf64_Phdr& segment : *segments)
    if (segment.p_type == PT_LOAD && !lies_within(object, segment.p_offset, segment.p_filesz)) return "they are cut short";
  return {};
}

std::optional<std::string> exported_text(std::span<const std::byte> object, std::string_view name) {
  const auto header = read_at<Elf64_Ehdr>(object, 0);
  if (!header || !why_no_shared_object(object).empty() || header->e_shentsize != sizeof(Elf64_Shdr)) return std::nullopt;
  const auto segments = read_table<Elf64_Phdr>(object, header->e_phoff, header->e_phnum);
  const auto sections = read_table<Elf64_Shdr>(object, header->e_shoff, header->e_shnum);
  if (!segments || !sections) return std::nullopt;
  for (const Elf64_Shdr& section : *sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections->size()) continue;
    const Elf64_Shdr& names = (*sections)[section.sh_link];
    const auto symbols = read_table<Elf64_Sym>(object, section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
    if (!symbols || !lies_within(object, names.sh_offset, names.sh_size)) continue;
    for (const Elf64_Sym& symbol : *symbols) {
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names.sh_size) continue;
      if (text_at(object, names.sh_offset + symbol.st_name) != name) continue;
      const auto offset = file_offset(*segments, symbol.st_value);
      return offset ? text_at(object, *offset) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace gcomp::runtime::cpu
