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
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

bool Interrupt::requested() const { return g_requested != 0; }

}  // namespace gcomp::tools
