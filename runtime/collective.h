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

/// What all ranks throw together, and know that the others do: agree() passes it on.
class AgreedFailure : public Error {
 public:
  AgreedFailure(ExitCode code, const std::string& text, bool by_all) : Error(code, text), by_all_(by_all) {}
  bool by_all() const { return by_all_; }  ///< each rank failed by itself, with the same words

 private:
  bool by_all_;
};

/// A text of each rank, by rank. All ranks call this and agree() in the same order; one that has failed within agree() may leave
/// out what the others still gather before they come to its end: they throw its AgreedFailure then.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text);
/// Does the work on each rank. Where it threw an Error on any, all throw the AgreedFailure of the first of these, of one whose own
/// fault it is where any says so: as it was where all say the same, else with its rank: "rank 2 of 4 (host): ...".
void agree(Communicator& ranks, const std::function<void()>& work);

}  // namespace gcomp::runtime
