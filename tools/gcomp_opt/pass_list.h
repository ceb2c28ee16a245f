// The passes that gcomp-opt runs by name: those of the pipeline and those that build a training step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/memory_plan.h"

namespace gcomp::opt {

/// What passes leave beside the graph.
struct PassState {
  std::optional<ir::MemoryPlan> plan;  ///< of the graph as it stands; plan_memory makes it
};

/// One step of --passes, bound to its options.
struct Step {
  std::string name;
  std::string text;              ///< as given, with options
  bool changes_meaning = false;  ///< outputs or states are not those of before; --verify-numerics compares nothing
  std::function<bool(ir::Graph&, PassState&)> run;
};

/// "simplify,fuse{merging=false}", for a target such as "cuda:sm_90"; "" is none in particular, for which every pass does what it
/// can. Throws UserError (exit 2) that names the nearest pass or option for an unknown one.
std::vector<Step> parse_passes(std::string_view text, const std::string& target = {});

/// One line for each pass with its options, for --list-passes.
std::string list_passes();

}  // namespace gcomp::opt
