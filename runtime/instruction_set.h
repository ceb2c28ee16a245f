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

/// The widest that this processor and its operating system have.
InstructionSet widest_instruction_set();

/// Whether the processor multiplies pairs of bf16 at once, which comes with AVX-512.
bool has_bf16_products();

}  // namespace gcomp::runtime
