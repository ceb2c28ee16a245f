#include "runtime/instruction_set.h"

#include "ir/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gcomp::runtime {
namespace {

#if defined(__x86_64__)
/// Clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/// Whether the processor has AMX's tiles and their products of bf16.
bool knows_tiles() {
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;  // of leaf 7, EDX
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kBf16) && (d & kTiles);
}

/// The operating system must save the tiles, and let this process use them.
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

InstructionSet find_widest() {
  const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  if (!fma) return InstructionSet::baseline;
  if (!wide) return InstructionSet::avx2;
  return __builtin_cpu_supports("avx512bf16") && knows_tiles() && may_use_tiles() ? InstructionSet::amx : InstructionSet::avx512;
}
#endif

struct NamedSet {
  InstructionSet set;
  std::string_view name, shown;
};
constexpr NamedSet kInstructionSets[] = {{InstructionSet::baseline, "baseline", "128-bit vectors"},
                                         {InstructionSet::avx2, "avx2", "AVX2"},
                                         {InstructionSet::avx512, "avx512", "AVX-512"},
                                         {InstructionSet::amx, "amx", "AVX-512 and AMX"}};

}  // namespace

InstructionSet parse_instruction_set(std::string_view text) {
  for (const NamedSet& known : kInstructionSets)
    if (known.name == text) return known.set;
  throw UserError(concat("unknown instruction set '", text, "': expected baseline, avx2, avx512 or amx"), ExitCode::usage);
}

InstructionSet usable_instruction_set(Optional<InstructionSet> asked, InstructionSet widest) {
  if (!asked) return widest;
  if (*asked <= widest) return *asked;
  const std::string_view why =
      *asked == InstructionSet::amx && refuses_tiles() ? ", whose AMX the operating system does not let this process use," : "";
  throw DeviceError(concat("instruction set ", kInstructionSets[static_cast<std::size_t>(*asked)].name,
                           " was asked for, and this processor", why, " has ", shown_name(widest), " at most; ask for ",
                           kInstructionSets[static_cast<std::size_t>(widest)].name, " or for none"),
                    ExitCode::no_device);
}

std::string_view shown_name(InstructionSet set) { return kInstructionSets[static_cast<std::size_t>(set)].shown; }

InstructionSet widest_instruction_set() {
#if defined(__x86_64__)
  static const InstructionSet widest = find_widest();
  return widest;
#else
  return InstructionSet::baseline;
#endif
}

bool refuses_tiles() {
#if defined(__x86_64__)
  return widest_instruction_set() == InstructionSet::avx512 && __builtin_cpu_supports("avx512bf16") && knows_tiles();
#else
  return false;
#endif
}

bool has_bf16_products() {
#if defined(__x86_64__)
  return widest_instruction_set() >= InstructionSet::avx512 && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

}  // namespace gcomp::runtime
