#include "runtime/cpu/elf.h"

#include <elf.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>
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

constexpr std::pair<Elf64_Half, std::string_view> kMachineNames[] = {
    {EM_386, "x86"},          {EM_X86_64, "x86-64"}, {EM_ARM, "ARM"},   {EM_AARCH64, "AArch64"},
    {EM_PPC64, "PowerPC 64"}, {EM_RISCV, "RISC-V"},  {EM_S390, "S/390"}};

/// Calls `visit(name, place of its bytes in the file)` for each symbol that the object exports, until it gives false.
template <class Visit>
void for_each_export(std::span<const std::byte> object, const Visit& visit) {
  const auto header = read_at<Elf64_Ehdr>(object, 0);
  if (!header || !why_no_shared_object(object).empty() || header->e_shentsize != sizeof(Elf64_Shdr)) return;
  const auto segments = read_table<Elf64_Phdr>(object, header->e_phoff, header->e_phnum);
  const auto sections = read_table<Elf64_Shdr>(object, header->e_shoff, header->e_shnum);
  if (!segments || !sections) return;
  for (const Elf64_Shdr& section : *sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections->size()) continue;
    const Elf64_Shdr& names = (*sections)[section.sh_link];
    const auto symbols = read_table<Elf64_Sym>(object, section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
    if (!symbols || !lies_within(object, names.sh_offset, names.sh_size)) continue;
    for (const Elf64_Sym& symbol : *symbols) {
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names.sh_size) continue;
      const auto name = text_at(object, names.sh_offset + symbol.st_name);
      if (name && !visit(*name, file_offset(*segments, symbol.st_value))) return;
    }
  }
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
  std::optional<std::string> text;
  for_each_export(object, [&](const std::string& exported, std::optional<std::uint64_t> offset) {
    if (exported != name) return true;
    if (offset) text = text_at(object, *offset);
    return false;
  });
  return text;
}

std::unordered_set<std::string> exported_names(std::span<const std::byte> object) {
  std::unordered_set<std::string> names;
  for_each_export(object, [&](const std::string& name, std::optional<std::uint64_t>) {
    names.insert(name);
    return true;
  });
  return names;
}

std::string describe_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "an empty file";
  if (const auto header = read_at<Elf64_Ehdr>(bytes, 0); header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0) {
    const auto known = std::find_if(std::begin(kMachineNames), std::end(kMachineNames),
                                    [&](const auto& machine) { return machine.first == header->e_machine; });
    const std::string machine =
        known != std::end(kMachineNames) ? std::string(known->second) : concat("machine ", header->e_machine);
    return concat("an ELF file of ", bytes.size(), " bytes for ", machine);
  }
  constexpr std::size_t kShown = 40;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view start = text.substr(0, std::min(text.find('\n'), kShown));
  const bool printable = std::all_of(start.begin(), start.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return concat(printable ? "a text file of " : "a file of ", bytes.size(), " bytes",
                printable ? concat(" that begins '", start, "'") : "");
}

}  // namespace gcomp::runtime::cpu
