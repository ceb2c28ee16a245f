#include "runtime/collective.h"

#include "ir/base/error.h"

namespace gcomp::runtime {

void require_ranks(const Communicator* communicator, const CollectiveCall& call, const std::string& program) {
  check_user(communicator, "program '", program, "' is one of ", call.ranks, " ranks, and this process runs alone");
  check_user(communicator->size() == call.ranks, "program '", program, "' is one of ", call.ranks, " ranks, and ",
             communicator->size(), " run");
}

void refuse_collective(const CollectiveCall& call, const std::string& program) {
  throw UserError(concat("program '", program, "' exchanges data between ", call.ranks,
                         " ranks, which gcomp does between processes on CPUs and not yet between GPUs"),
                  ExitCode::unsupported);
}

}  // namespace gcomp::runtime
