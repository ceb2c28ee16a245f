#include "tools/gcomp/interrupt.h"

#include "ir/base/error.h"
#include "runtime/files/left_behind.h"

namespace gcomp::tools {
namespace {

constexpr std::pair<int, const char*> kNames[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}};

volatile std::sig_atomic_t g_signal = 0;  // a signal handler can reach nothing else

/// Ends the process by the signal, without what it would leave.
void end_process(int signal) {
  runtime::remove_left_behind();
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  raise(signal);  // delivered when this returns
}

/// Notes the first signal and lets the second one end the process, whichever of them it is.
void note(int signal) {
  if (g_signal == 0) g_signal = signal;
  for (const auto& [number, name] : kNames) {
    struct sigaction current {};
    if (sigaction(number, nullptr, &current) != 0 || current.sa_handler != note) continue;
    current.sa_handler = end_process;
    sigaction(number, &current, nullptr);
  }
}

/// One at a time, whichever of them they are.
struct sigaction handled_by(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  for (const auto& [number, name] : kNames) sigaddset(&action.sa_mask, number);
  action.sa_flags = SA_RESTART;
  return action;
}

}  // namespace

std::string name_of_signal(int signal) {
  if (signal == 0) return "a signal to another process";
  for (const auto& [number, name] : kNames)
    if (number == signal) return name;
  return concat("signal ", signal);
}

void leave_nothing_behind() {
  const struct sigaction action = handled_by(end_process);
  for (const auto& [number, name] : kNames) {
    struct sigaction current {};
    if (sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) sigaction(number, &action, nullptr);
  }
}

Interrupt::Interrupt() {
  g_signal = 0;
  const struct sigaction action = handled_by(note);
  for (std::size_t i = 0; i < old_.size(); ++i) {
    sigaction(kSignals[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old_pipe_);
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < old_.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
  sigaction(SIGPIPE, &old_pipe_, nullptr);
}

int Interrupt::signal() const { return g_signal; }

}  // namespace gcomp::tools
