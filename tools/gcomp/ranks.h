// Options of gcomp train for several processes that train together, and what they need: --ranks 4, or a launcher.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gcomp/communicator.h"
#include "runtime/comm/timed_communicator.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tools {

struct RankFlags {
  std::int64_t ranks = 0;  ///< 0: as many as a launcher started
  std::string distributed = "auto", plugin;
  bool time_exchanges = false, overlap = false, no_overlap = false;

  void add(ArgumentParser& parser);
};

/// The ranks that this process is one of.
struct OpenedRanks {
  std::unique_ptr<Communicator> communicator;  ///< null for a process that trains alone
  int on_this_machine = 1;
  const runtime::comm::TimedCommunicator* timed = nullptr;  ///< with --time-exchanges, the communicator
};
/// With --ranks and no launcher, has mpirun start this program again with `words`, its command line, waits for it, and ends the
/// process with its exit code; the first signal asks the ranks to end after their step. Throws UserError (exit 2) where launcher
/// and options do not agree, DeviceError (exit 6) where MPI cannot be had.
OpenedRanks open_ranks(const RankFlags& flags, const std::vector<std::string>& words);

/// What the signal that a rank noted stands for: mpirun passes SIGUSR1 on whatever came to the process that was given --ranks.
int signal_asked(int noted);

}  // namespace gcomp::tools
