// Runs of what users write in C++ with Vars: a model's definition, an optimizer's rule. A Var knows the number of its own, so that
// one which outlives it, or meets another model's, is refused and never looked at.
#pragma once

#include <cstdint>

namespace gcomp::ir {

/// While it lives, its number is one of a run. Runs may lie within one another, and in several threads.
class DefinitionRun {
 public:
  DefinitionRun();
  ~DefinitionRun();
  DefinitionRun(const DefinitionRun&) = delete;
  DefinitionRun& operator=(const DefinitionRun&) = delete;

  /// Never 0, and never that of another.
  std::uint64_t number() const { return number_; }

 private:
  std::uint64_t number_;
};

/// Throws UserError where that run is over. 0 is gcomp's own use of builders, which is never over.
void require_running(std::uint64_t run);

}  // namespace gcomp::ir
