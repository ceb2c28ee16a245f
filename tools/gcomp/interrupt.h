// Ctrl-C during training: the first one ends the run after the step, the second one ends the process.
#pragma once

#include <csignal>
#include <string>

namespace gcomp::tools {

/// Exit code of an interrupted run, as shells count: 128 + SIGINT.
inline constexpr int kInterruptedExit = 130;

/// Thrown once the step has ended.
struct Interrupted {
  std::string message;
};

/// While alive, SIGINT and SIGTERM are noted; a second one has its usual effect. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;

 private:
  struct sigaction old_interrupt_ {
  }, old_terminate_{};
};

}  // namespace gcomp::tools
