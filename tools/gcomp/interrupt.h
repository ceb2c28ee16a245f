// Ctrl-C during a training run: the first one ends the run after the step, the second one ends the process.
#pragma once

#include <array>
#include <csignal>
#include <iterator>
#include <string>

namespace gcomp::tools {

/// Exit code of an interrupted run, as shells count: 128 + SIGINT.
inline constexpr int kInterruptedExit = 130;

/// Thrown once the step has ended.
struct Interrupted {
  std::string message;
};

/// While alive, SIGINT, SIGTERM and SIGHUP are noted, unless the process came with them ignored; a second one has its usual effect.
/// One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, std::size(kSignals)> old_ = {};
};

}  // namespace gcomp::tools
