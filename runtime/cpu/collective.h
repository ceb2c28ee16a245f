// Steps between ranks on the CPU: one call of the communicator each.
#pragma once

#include <cstddef>
#include <memory>

#include "gcomp/communicator.h"
#include "runtime/cpu/library_call.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

/// The addresses are those of the call's buffers.
std::unique_ptr<LibraryCall> make_collective(const CollectiveCall& call, const std::byte* operand, std::byte* result,
                                             Communicator& communicator);

}  // namespace gcomp::runtime::cpu
