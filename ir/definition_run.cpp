#include "ir/definition_run.h"

#include <mutex>
#include <set>

#include "ir/base/error.h"

namespace gcomp::ir {
namespace {

struct Runs {
  std::mutex mutex;
  std::set<std::uint64_t> running;
  std::uint64_t last = 0;
};

Runs& runs() {
  static Runs all;
  return all;
}

}  // namespace

DefinitionRun::DefinitionRun() {
  Runs& all = runs();
  const std::lock_guard lock(all.mutex);
  number_ = ++all.last;
  all.running.insert(number_);
}

DefinitionRun::~DefinitionRun() {
  Runs& all = runs();
  const std::lock_guard lock(all.mutex);
  all.running.erase(number_);
}

void require_running(std::uint64_t run) {
  if (run == 0) return;
  Runs& all = runs();
  const std::lock_guard lock(all.mutex);
  check_user(all.running.contains(run),
             "a Var is used after the run of the definition that made it, which has ended; it lives as long as that run");
}

}  // namespace gcomp::ir
