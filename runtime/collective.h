// What all devices ask of a program whose steps go between ranks.
#pragma once

#include <string>

#include "gcomp/communicator.h"
#include "runtime/program.h"

namespace gcomp::runtime {

/// Throws UserError where there is no communicator, or one of another number of ranks than the step is compiled for.
void require_ranks(const Communicator* communicator, const CollectiveCall& call, const std::string& program);

/// Throws UserError (exit 4): the device has no way to other ranks.
[[noreturn]] void refuse_collective(const CollectiveCall& call, const std::string& program);

}  // namespace gcomp::runtime
