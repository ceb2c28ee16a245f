// The vector instructions that the CPU's kernels use.
#pragma once

#include <string_view>

#include "gcomp/device_options.h"

namespace gcomp::runtime {

using gcomp::InstructionSet;

/// "avx2" as the set of that name; throws UserError (exit 2) listing the names otherwise.
InstructionSet parse_instruction_set(std::string_view text);

/// What to use where `asked` was asked for, on a processor that has `widest`: the widest where nothing was. Throws DeviceError
/// (exit 6) where the processor lacks what was asked for.
InstructionSet usable_instruction_set(Optional<InstructionSet> asked, InstructionSet widest);

/// For the user: "AVX2".
std::string_view shown_name(InstructionSet set);

/// The widest that this processor and its operating system have. The first call asks Linux for the use of AMX's tiles, which is
/// this process's from then on.
InstructionSet widest_instruction_set();

/// Whether the processor has AMX, and the operating system does not let this process use it: a filter of system calls, or a signal
/// stack too small for the tiles.
bool refuses_tiles();

/// Without what adds to the vectors: amx's are those of avx512.
constexpr InstructionSet vectors_of(InstructionSet set) { return set == InstructionSet::amx ? InstructionSet::avx512 : set; }

/// Whether the processor multiplies pairs of bf16 faster than as many f32: AMD's with AVX512-BF16. Intel's have the instruction
/// too, but are faster by way of f32 (a Xeon, a step of an MLP: 216 ms with it, 173 without).
bool has_bf16_products();

}  // namespace gcomp::runtime
