#include "tools/gcomp/interrupt.h"

namespace gcomp::tools {
namespace {

volatile std::sig_atomic_t g_requested = 0;  // a signal handler can reach nothing else

void note(int) { g_requested = 1; }

}  // namespace

Interrupt::Interrupt() {
  g_requested = 0;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (std::size_t i = 0; i < old_.size(); ++i) {
    sigaction(kSignals[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < old_.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
}

bool Interrupt::requested() const { return g_requested != 0; }

}  // namespace gcomp::tools
