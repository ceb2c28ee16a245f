// Ctrl-C and its kin: they end the process, without what it would leave. During a training run the first one ends the run after the
// step.
#pragma once

#include <array>
#include <csignal>
#include <iterator>
#include <string>

namespace gcomp::tools {

/// Exit code of a run that a signal ended, as shells count.
/// Of 0, which another rank got and no one knows here, as of SIGTERM.
constexpr int exit_code_of_signal(int signal) { return 128 + (signal == 0 ? SIGTERM : signal); }
/// "SIGTERM"; of 0 "a signal to another process".
std::string name_of_signal(int signal);

/// From here on SIGINT, SIGTERM, SIGHUP and SIGUSR1, which mpirun and batch systems pass on, end compilers and remove temporary
/// files before they end the process; those that the process came with ignored stay so.
void leave_nothing_behind();

/// While alive, writing to a pipe that nobody reads any more is an error of that write, and the first of those signals
/// is noted, unless the process came with it ignored; after it each ends the process. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Which one came, 0 while none did.
  int signal() const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::array<struct sigaction, std::size(kSignals)> old_ = {};
  struct sigaction old_pipe_ = {};
};

}  // namespace gcomp::tools
