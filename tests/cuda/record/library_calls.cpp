#include "tests/cuda/record/library_calls.h"

namespace gcomp::emulated {
namespace {

/// Never destroyed: the report is written after static objects are gone.
Calls*& instance() {
  static Calls* made = nullptr;
  return made;
}

__attribute__((destructor)) void report_at_exit() {
  if (const Calls* made = instance()) made->report(reported_name(), reported_figures(*made));
}

}  // namespace

Calls& calls() {
  static std::once_flag once;
  std::call_once(once, [] { instance() = new Calls(); });
  return *instance();
}

}  // namespace gcomp::emulated
