// What all devices ask of several ranks: that they fit a program, and that all know what goes wrong on one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gcomp/communicator.h"
#include "runtime/program.h"

namespace gcomp::runtime {

/// Throws UserError where there is no communicator, or one of another number of ranks than the step is compiled for.
void require_ranks(const Communicator* communicator, const CollectiveCall& call, const std::string& program);

/// What this rank waits for will not come, for another rank has failed, which says why.
class OtherRankFailed : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// A text of each rank, by rank. All ranks call this and the next at the same time.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text);
/// Does the work on each rank. Where it threw an Error on any, all throw a DeviceError: that of the first of these, whose own
/// fault it is where any says so, as it was where all say the same, else with its rank: "rank 2 of 4 (host): ...".
void agree(Communicator& ranks, const std::function<void()>& work);

}  // namespace gcomp::runtime
