#include "runtime/instruction_set.h"

#include "ir/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gcomp::runtime {
namespace {

#if defined(__x86_64__)
/// Clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

struct NamedSet {
  InstructionSet set;
  std::string_view name, shown;
};
constexpr NamedSet kInstructionSets[] = {{InstructionSet::baseline, "baseline", "128-bit vectors"},
                                         {InstructionSet::avx2, "avx2", "AVX2"},
                                         {InstructionSet::avx512, "avx512", "AVX-512"}};

}  // namespace

InstructionSet parse_instruction_set(std::string_view text) {
  for (const NamedSet& known : kInstructionSets)
    if (known.name == text) return known.set;
  throw UserError(concat("unknown instruction set '", text, "': expected baseline, avx2 or avx512"), ExitCode::usage);
}

InstructionSet usable_instruction_set(Optional<InstructionSet> asked, InstructionSet widest) {
  if (!asked) return widest;
  if (*asked <= widest) return *asked;
  throw DeviceError(
      concat("instruction set ", kInstructionSets[static_cast<std::size_t>(*asked)].name, " was asked for, and this processor has ",
             shown_name(widest), " at most; ask for ", kInstructionSets[static_cast<std::size_t>(widest)].name, " or for none"),
      ExitCode::no_device);
}

std::string_view shown_name(InstructionSet set) { return kInstructionSets[static_cast<std::size_t>(set)].shown; }

InstructionSet widest_instruction_set() {
#if defined(__x86_64__)
  const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  if (fma) return wide ? InstructionSet::avx512 : InstructionSet::avx2;
#endif
  return InstructionSet::baseline;
}

bool has_bf16_products() {
#if defined(__x86_64__)
  return widest_instruction_set() == InstructionSet::avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace gcomp::runtime
