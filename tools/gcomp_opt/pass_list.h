// The passes that gcomp-opt runs by name: those of the pass table, by their names there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/pipeline.h"

namespace gcomp::opt {

/// What passes leave beside the graph.
struct PassState {
  passes::PassResults made;
  passes::Forms held;  ///< what the passes so far have given
};

/// One step of --passes, bound to its options.
struct Step {
  std::string name;
  std::string text;              ///< as given, with options
  bool changes_meaning = false;  ///< outputs or states are not those of before; --verify-numerics compares nothing
  std::function<bool(ir::Graph&, PassState&)> run;
};

/// "simplify,fuse{loop_fusion=false}", or "all" for those that lower a complete graph, for a target such as "cuda:sm_90"; "" is
/// none in particular, for which every pass does what it can. Throws UserError (exit 2) that names the nearest pass or option for
/// an unknown one.
std::vector<Step> parse_passes(std::string_view text, const std::string& target = {});

/// One line for each pass with its options, for --list-passes.
std::string list_passes();

}  // namespace gcomp::opt
