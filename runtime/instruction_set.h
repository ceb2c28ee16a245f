// The vector instructions that the CPU's kernels use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gcomp::runtime {

/// From narrow to wide. Baseline is what every processor of its architecture has (on x86-64 SSE2, on ARM NEON), avx2 comes with FMA
/// (x86-64-v3), avx512 with its F, DQ, BW and VL parts.
enum class InstructionSet : std::uint8_t { baseline, avx2, avx512 };

/// "avx2" as the set of that name; throws UserError (exit 2) listing the names otherwise.
InstructionSet parse_instruction_set(std::string_view text);

/// What to use where `asked` was asked for, on a processor that has `widest`: the widest where nothing was. Throws DeviceError
/// (exit 6) where the processor lacks what was asked for.
InstructionSet usable_instruction_set(std::optional<InstructionSet> asked, InstructionSet widest);

/// For the user: "AVX2".
std::string_view shown_name(InstructionSet set);

/// The widest that this processor and its operating system have.
InstructionSet widest_instruction_set();

}  // namespace gcomp::runtime
